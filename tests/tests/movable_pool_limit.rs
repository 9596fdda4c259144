//! A pool of memory that moves reserves no more than its own `maxSize`, also where threads make it
//! grow at the same time.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gpushare_tests::movable::Scene;
use gpushare_tests::{MIB, until};
use tempfile::TempDir;

const SPEC: &str = "mem=1GiB,ctx=8MiB,driver=13050";
/// The bytes that each allocation takes: a segment of the pool.
const SIZE: u64 = 32 * MIB;

/// How long the driver is held where no call of another thread gets there: one that waits tells
/// nobody.
const HELD: Duration = Duration::from_millis(100);

/// A program with a pool of at most `most` bytes, and what holds it in `cuMemCreate`.
fn limited(most: u64) -> (Scene, TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("held");
    let hold = format!("cuMemCreate:{}", file.display());
    let mut scene = Scene::with(SPEC, "init", &[("SOFTGPU_HOLD", &hold)]);
    scene.does(&[&format!("pool 1 0 {most}"), "use 1"]);
    (scene, folder, file)
}

/// Two threads allocate `bytes` each: the second one asks while the pool's growth for the first one
/// is in the driver. Returns the answers of both.
fn two_at_once(scene: &mut Scene, file: &Path, bytes: u64) -> [String; 2] {
    fs::write(file, "").expect("writable");
    let held = |count: usize| {
        let lines = fs::read_to_string(file).unwrap_or_default();
        lines.lines().count() >= count
    };
    scene.does(&[&format!("beside 1 {bytes} 1")]);
    until("a thread is in the driver", || held(1));
    let is_answered = AtomicBool::new(false);
    let second = std::thread::scope(|scope| {
        scope.spawn(|| {
            let end = Instant::now() + HELD;
            until("the other thread is there too, back, or waits", || {
                held(2) || is_answered.load(Ordering::SeqCst) || Instant::now() >= end
            });
            // A thread that waits looks like one that has not come yet.
            eprintln!("both threads were in the driver: {}", held(2));
            fs::remove_file(file).expect("it is there");
        });
        let answer = scene.guest.ask(&format!("from 2 {bytes} 1 1"));
        is_answered.store(true, Ordering::SeqCst);
        answer
    });
    [scene.guest.ask("joined"), second]
}

/// The same with allocations of a full segment each, in a pool with one.
fn at_once(most: u64) -> (Scene, [String; 2]) {
    let (mut scene, _folder, file) = limited(most);
    scene.does(&[&format!("from 0 {SIZE} 1 1")]);
    let answers = two_at_once(&mut scene, &file, SIZE);
    (scene, answers)
}

/// The bytes that the pool has reserved.
fn reserved(scene: &mut Scene) -> u64 {
    let answer = scene.guest.ask("level 1");
    let words: Vec<&str> = answer.split(' ').collect();
    assert_eq!(words.last(), Some(&"0"), "{answer}");
    words[1].parse().expect("a number")
}

#[test]
fn two_threads_do_not_grow_a_pool_beyond_its_limit() {
    let (mut scene, answers) = at_once(2 * SIZE);
    assert_eq!(answers, ["joined 0", "from 2"]);
    assert_eq!(reserved(&mut scene), 2 * SIZE);
    assert_eq!(scene.charged(), 2 * SIZE);
    // The refused growth takes nothing of the limit, nor does one that is over.
    scene.does(&["later 0 1", "later 1 1", "sync 1", "trim 1 0"]);
    assert_eq!(reserved(&mut scene), 0);
    scene.does(&[&format!("from 2 {} 1 1", 2 * SIZE)]);
    assert_eq!(reserved(&mut scene), 2 * SIZE);
    scene.guest.finish().silently();
}

#[test]
fn two_threads_grow_a_pool_at_once_within_its_limit() {
    let (mut scene, answers) = at_once(3 * SIZE);
    assert_eq!(answers, ["joined 0", "from 0"]);
    assert_eq!(reserved(&mut scene), 3 * SIZE);
    scene.guest.finish().silently();
}

#[test]
fn what_a_pool_grows_by_for_a_thread_has_room_for_another_one() {
    let (mut scene, _folder, file) = limited(SIZE);
    let answers = two_at_once(&mut scene, &file, MIB);
    assert_eq!(answers, ["joined 0", "from 0"]);
    assert_eq!(reserved(&mut scene), SIZE);
    assert_eq!(scene.charged(), SIZE);
    scene.guest.finish().silently();
}

#[test]
fn a_growth_that_the_driver_refuses_takes_nothing_of_a_pools_limit() {
    let fail = [("SOFTGPU_FAIL", "cuMemCreate:1:CUDA_ERROR_UNKNOWN")];
    let mut scene = Scene::with(SPEC, "init", &fail);
    scene.does(&[&format!("pool 1 0 {SIZE}")]);
    let ask = format!("from 0 {SIZE} 1 1");
    assert_eq!(scene.guest.ask(&ask), "from 999");
    scene.does(&[&ask]);
    assert_eq!(reserved(&mut scene), SIZE);
    scene.guest.finish().silently();
}

//! Each call of the daemon's on the files in which memory is stored, and on the memory that is
//! stored, fails in turn: a full disk, a short write, an error at reading. Or the daemon is killed
//! there. Memory that is on the host stays there, and what cannot be read is an error: never other
//! bytes. The calls are read off a trace of what the daemon does.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::thread;

use gpushare_tests::process::is_dead;
use gpushare_tests::sweep::{Steps, chosen, is_every_step, said};
use gpushare_tests::{Guest, MIB, Tenant, until};

use crate::spill::{MOST, SIZE, Scene};
use crate::spill_to_folder::suspend_to;

const EIO: &str = "5";
const ENOMEM: &str = "12";
const EMFILE: &str = "24";
const ENOSPC: &str = "28";
const EOPNOTSUPP: &str = "95";

/// How each call can fail.
const EFFECTS: [(&str, &[&str]); 13] = [
    ("open64.file", &[EMFILE, ENOSPC]),
    ("fallocate.file", &[ENOSPC, EIO, EOPNOTSUPP]),
    ("punch.file", &[EIO]),
    ("pwrite64.file", &[ENOSPC, EIO, "short", "end"]),
    ("fdatasync.file", &[EIO]),
    ("posix_fadvise.file", &[EIO]),
    ("dup.file", &[EMFILE]),
    ("pread64.file", &[EIO, "short", "end", "flip"]),
    ("fallocate.memory", &[ENOMEM]),
    ("punch.memory", &[EIO]),
    ("pread64.memory", &[EIO, "short", "end"]),
    ("pwrite64.memory", &[ENOSPC, "short"]),
    ("dup.memory", &[EMFILE]),
];

/// The answer where the bytes are lost: the device is unavailable.
const LOST: &str = "check 1000000046";

/// Whether bytes that cannot be had after this are lost for good: those in the file are wrong, or
/// cannot be read.
fn may_lose(function: &str, effect: &str) -> bool {
    function == "pread64.file" && effect != "short"
}

/// A first tenant whose memory is stored for a second one, as far as that succeeds.
fn spills(scene: &Scene) -> [(Tenant, Guest); 2] {
    let one = scene.filled("one", 3);
    scene.daemon.suspend("one");
    let two = scene.filled("two", 4);
    until("its memory is stored, or cannot be", || {
        let failed = ["spill-failed", "host-failed"];
        let is_told = failed
            .iter()
            .any(|kind| !scene.daemon.events(kind).is_empty());
        is_told || scene.stored() >= MOST
    });
    [one, two]
}

/// Then the second has its bytes, and makes way; the first comes back, or gets an error.
fn comes_back(
    scene: &Scene,
    [(_one, mut first), (_two, mut second)]: [(Tenant, Guest); 2],
    why: &str,
) -> bool {
    assert_eq!(second.ask("check 4"), "check 0", "{why}");
    assert_eq!(second.ask("free"), "free 0", "{why}");
    let answer = first.ask("check 3");
    let is_lost = answer == LOST;
    assert!(is_lost || answer == "check 0", "{why}: {answer}");
    let told = !scene.daemon.events("memory-lost").is_empty();
    assert_eq!(told, is_lost, "{why}");
    assert_eq!(first.ask("check 3"), answer, "{why}: and it stays so");
    until("what counts as given is what the processes have", || {
        let (room, _) = scene.daemon.swaps("one");
        room.host_used == mapped(&first) + mapped(&second)
    });
    is_lost
}

/// Bytes of host memory that a process has. The driver maps what it has pinned a second time.
fn mapped(guest: &Guest) -> u64 {
    const PAGE: u64 = 4096;
    let maps = fs::read_to_string(format!("/proc/{}/maps", guest.id())).expect("it lives");
    let ours = maps
        .lines()
        .filter(|line| line.contains("memfd:gpushare-host"));
    let number = |text| u64::from_str_radix(text, 16).expect("an address");
    let pages = ours.flat_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (from, to) = words[0].split_once('-').expect("a range");
        let (first, file) = (number(words[2]), words[4].to_owned());
        let last = first + number(to) - number(from);
        let page = move |offset| (file.clone(), offset);
        (first / PAGE..last / PAGE).map(page)
    });
    pages.collect::<BTreeSet<_>>().len() as u64 * PAGE
}

/// The calls that a daemon makes for `run` once it serves: by function, from 1.
fn steps(make: impl Fn(&[(&str, &str)]) -> Scene, run: impl Fn(&Scene)) -> Steps {
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let path = trace.path().to_str().expect("a name");
    let scene = make(&[("FILE_TRACE", path)]);
    let before = counted(trace.path());
    run(&scene);
    let mut all = counted(trace.path());
    for (function, calls) in &mut all {
        calls.drain(..before.get(function).map_or(0, Vec::len));
        let known = EFFECTS.iter().any(|(known, _)| known == function);
        assert!(known, "{function} can fail in no way known here");
    }
    all
}

fn counted(trace: &Path) -> Steps {
    let text = fs::read_to_string(trace).expect("readable");
    let mut steps = Steps::new();
    for function in text.lines() {
        let calls = steps.entry(function.to_owned()).or_default();
        calls.push(calls.len() as u64 + 1);
    }
    steps
}

/// Each call fails in `usual` of its ways, in all where `GPUTEST_EVERY_STEP` is set (`soak.sh`).
/// `run` says whether bytes were lost.
fn each_fails(
    make: impl Fn(&[(&str, &str)]) -> Scene,
    run: impl Fn(&Scene, &str) -> bool,
    wanted: impl Fn(&str) -> bool,
    usual: usize,
) {
    let most = if is_every_step() { usize::MAX } else { usual };
    let mut steps = steps(&make, |scene| assert!(!run(scene, "nothing fails")));
    steps.retain(|function, _| wanted(function));
    let cases = chosen(&steps, 1);
    let (mut count, mut lost, mut could) = (0, 0, 0);
    for (function, nth) in &cases {
        let effects = EFFECTS.iter().find(|(known, _)| known == function);
        let effects = effects.map_or(&[][..], |(_, effects)| effects);
        for effect in effects.iter().take(most) {
            // A run may store less than the first one did, but at least `MOST` of `SIZE`, of which
            // the last range of 2 MiB may only have its place. A read of the rest comes in each
            // run.
            let nth = match may_lose(function, effect) && !is_every_step() {
                true => (nth * (MOST - 2 * MIB) / SIZE).max(1),
                false => *nth,
            };
            let fail = format!("{function}:{nth}:{effect}");
            eprintln!("{fail}");
            let scene = make(&[("FILE_FAIL", &fail)]);
            let is_lost = run(&scene, &fail);
            // A run may make fewer calls than the first one: then that call does not come.
            assert!(!is_lost || may_lose(function, effect), "{fail}");
            lost += u32::from(is_lost);
            could += u32::from(may_lose(function, effect));
            count += 1;
        }
    }
    eprintln!("{count} failures, of which {lost} lost bytes and said so");
    assert!((lost > 0) == (could > 0), "none of {could} failures came");
    said("calls", cases.len(), &steps);
}

fn of_folder(function: &str) -> bool {
    function.ends_with(".file")
}

#[test]
fn whatever_call_on_a_file_fails_no_other_bytes_come_back() {
    let run = |scene: &Scene, why: &str| comes_back(scene, spills(scene), why);
    each_fails(Scene::failing, run, of_folder, 1);
}

#[test]
fn whatever_call_on_the_stored_memory_fails_no_byte_is_lost() {
    let run = |scene: &Scene, why: &str| comes_back(scene, spills(scene), why);
    each_fails(Scene::failing, run, |function| !of_folder(function), 1);
}

/// The first range is allocated, and the daemon has no descriptor left to send with it.
#[test]
fn a_range_that_cannot_be_handed_out_is_taken_back() {
    let scene = Scene::failing(&[("FILE_FAIL", &format!("dup.memory:1:{EMFILE}"))]);
    let (_one, first) = scene.filled("one", 3);
    until("what counts as given is what the process has", || {
        let (room, _) = scene.daemon.swaps("one");
        let mapped = mapped(&first);
        mapped >= SIZE && room.host_used == mapped
    });
}

/// Suspended to a folder that a command names, and back.
fn goes_to_a_folder(scene: &Scene, why: &str) -> bool {
    let (_one, mut first) = scene.filled("one", 3);
    let said = suspend_to(scene, "one");
    if let Err(error) = &said {
        let is_told = ["stays on the host", "has not left yet"];
        let is_told = is_told.iter().any(|told| error.contains(told));
        assert!(is_told, "{why}: {error}");
    }
    let answer = first.ask("check 3");
    let is_lost = answer == LOST;
    assert!(is_lost || answer == "check 0", "{why}: {answer}");
    assert!(
        !is_lost || said.is_ok(),
        "{why}: what was never stored is lost"
    );
    is_lost
}

#[test]
fn whatever_call_fails_of_a_suspension_to_a_folder_no_other_bytes_come() {
    each_fails(Scene::failing_without_folder, goes_to_a_folder, |_| true, 1);
}

#[test]
fn a_daemon_killed_at_any_call_on_a_file_loses_nothing() {
    let run = |scene: &Scene| {
        let _ = comes_back(scene, spills(scene), "nothing fails");
    };
    let mut steps = steps(Scene::failing, run);
    steps.retain(|function, _| of_folder(function));
    if !is_every_step() {
        // One in the middle of each: a shorter run makes fewer calls, and the last never comes.
        for calls in steps.values_mut() {
            calls.truncate(calls.len().div_ceil(2));
        }
    }
    let cases = chosen(&steps, 1);
    let mut came = 0;
    for (function, nth) in &cases {
        let fail = format!("{function}:{nth}:kill");
        eprintln!("{fail}");
        let mut scene = Scene::failing(&[("FILE_FAIL", &fail)]);
        let (_one, mut first) = scene.filled("one", 3);
        scene.daemon.suspend("one");
        let (_two, mut second) = scene.filled("two", 4);
        let is_over = |scene: &Scene| is_dead(scene.daemon.pid());
        until("it is stored, or the daemon is dead", || {
            is_over(&scene) || scene.stored() >= MOST
        });
        // Either may be out when the daemon dies, and waits for the next one then.
        let answers = thread::scope(|threads| {
            let one = threads.spawn(|| first.ask("check 3"));
            let two = threads.spawn(|| [second.ask("check 4"), second.ask("free")]);
            until("the daemon is dead, or all is back", || {
                is_over(&scene) || (one.is_finished() && two.is_finished())
            });
            // This run may have made fewer calls than the first one.
            came += usize::from(is_over(&scene));
            scene.daemon.restart();
            let [checked, freed] = two.join().expect("it answers");
            [one.join().expect("it answers"), checked, freed]
        });
        assert_eq!(answers, ["check 0", "check 0", "free 0"], "{fail}");
        assert_eq!(first.ask("check 3"), "check 0", "{fail}");
        assert!(scene.daemon.events("memory-lost").is_empty(), "{fail}");
    }
    assert!(
        came * 2 >= cases.len(),
        "{came} of {} calls came",
        cases.len()
    );
    said("kills of the daemon", cases.len(), &steps);
}

/// A way to change a file of this many bytes.
type Damage = fn(&fs::File, u64);

#[test]
fn a_file_that_is_damaged_in_any_way_is_an_error_of_each_call() {
    let swapped: Damage = |file, _| {
        let [mut one, mut two] = [vec![0; 4096], vec![0; 4096]];
        file.read_exact_at(&mut one, 0).expect("bytes");
        file.read_exact_at(&mut two, 4 * MIB).expect("bytes");
        // All bytes of the tenant are alike but where nothing is.
        two[0] = one[0] ^ 2;
        file.write_all_at(&two, 0).expect("bytes");
    };
    let damages: [(&str, Damage); 4] = [
        ("empty", |file, _| file.set_len(0).expect("shorter")),
        ("cut short", |file, bytes| {
            // Its end may not be written yet.
            file.set_len(bytes / 2).expect("shorter");
        }),
        ("zeros", |file, _| {
            file.write_all_at(&vec![0; 1 << 20], MIB).expect("zeros");
        }),
        ("other bytes", swapped),
    ];
    for (name, damage) in damages {
        let scene = Scene::failing(&[]);
        let [(_one, mut first), (_two, mut second)] = scene.spilled();
        let files = scene.files();
        let file = OpenOptions::new().read(true).write(true).open(&files[0]);
        let file = file.expect("our own daemon's");
        let bytes = file.metadata().expect("a file").len();
        damage(&file, bytes);
        assert_eq!(first.ask("check 3"), LOST, "{name}");
        assert_eq!(first.ask("fill 9"), "fill 46", "{name}");
        assert!(!scene.daemon.events("memory-lost").is_empty(), "{name}");
        drop(first);
        assert_eq!(second.ask("check 4"), "check 0", "{name}");
    }
}

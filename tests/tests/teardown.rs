//! Programs that end while the gate thread is at work. The thread does not call the driver after
//! its teardown (the software GPU would abort them), delays no program's end, and permits every
//! call that a program may make while it exits.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gpushare_protocol::page::lease::Turn;
use gpushare_tests::gpu::links;
use gpushare_tests::{Alone, Dealer, Ended, Gpu, Guest, clients};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// Exits of each kind.
const EXITS: u32 = 200;

/// A process that exits in this way under a cap, which its gate thread enforces.
fn capped(cap: &str, arguments: &[String]) -> Ended {
    capped_on(&Gpu::new(""), cap, arguments)
}

fn capped_on(gpu: &Gpu, cap: &str, arguments: &[String]) -> Ended {
    let alone = Alone::on(gpu);
    let mut command = alone.command(&["--sm-limit", cap], &clients::compile("teardown", &[]));
    command.args(arguments);
    Guest::start(command).finish()
}

fn words(how: &str, numbers: &[u64]) -> Vec<String> {
    let numbers = numbers.iter().map(u64::to_string);
    std::iter::once(how.to_owned()).chain(numbers).collect()
}

#[test]
fn no_exit_of_a_capped_program_meets_the_drivers_teardown() {
    let ended = capped("20", &words("exits", &[EXITS.into(), 50 * US]));
    assert_eq!(ended.silently(), format!("exits {EXITS} 0\n"));
}

/// How often a capped program sleeps at its end, in which threads can be started or not.
#[track_caller]
fn sleeps_at_its_end(arguments: &[&str]) -> u32 {
    let gpu = Gpu::new("");
    let alone = Alone::on(&gpu);
    let client = clients::compile("threadless", &["-rdynamic"]);
    let mut command = alone.command(&["--sm-limit", "20"], &client);
    command.args(arguments);
    let said = Guest::start(command).finish().silently();
    let sleeps = said
        .strip_prefix("0 ")
        .and_then(|sleeps| sleeps.trim().parse().ok());
    sleeps.unwrap_or_else(|| panic!("{said}"))
}

/// A wait for a thread that is not there would sleep a hundred times.
#[test]
fn a_program_in_which_no_thread_could_be_started_ends_at_once() {
    assert!(sleeps_at_its_end(&[]) < 60);
    // Where there is one, it may take its time.
    let _ = sleeps_at_its_end(&["threads"]);
}

#[test]
fn no_exit_of_a_program_whose_turns_change_meets_the_drivers_teardown() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut command: Command = dealer.command(&clients::compile("teardown", &[]));
    command.env("LD_LIBRARY_PATH", links());
    command.args(words("exits", &[EXITS.into(), 50 * US]));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| {
            let ended = Guest::start(command).finish();
            done.store(true, Ordering::Relaxed);
            ended
        });
        for epoch in (1..).step_by(1) {
            if done.load(Ordering::Relaxed) {
                break;
            }
            dealer.open(epoch);
            std::thread::sleep(Duration::from_micros(700));
            dealer.close(epoch);
            std::thread::sleep(Duration::from_micros(300));
        }
        dealer.deal(&Turn::default());
        let ended = ended.join().expect("nothing fails there");
        assert_eq!(ended.silently(), format!("exits {EXITS} 0\n"));
    });
}

#[test]
fn an_exit_handler_of_the_programs_still_uses_the_device() {
    let ended = capped("50", &words("handlers", &[10 * MS]));
    assert_eq!(ended.silently(), "result 0\n");
}

#[test]
fn a_handler_of_quick_exit_still_uses_the_device() {
    let ended = capped("50", &words("quick", &[10 * MS]));
    assert_eq!(ended.silently(), "result 0\n");
}

#[test]
fn a_thread_still_launches_after_main_has_returned() {
    let ended = capped("50", &words("main", &[40, MS]));
    assert_eq!(ended.silently(), "result 0\n");
}

#[test]
fn a_forked_childs_exit_stops_nothing_of_its_parents() {
    let ended = capped("50", &words("child", &[20 * MS]));
    assert_eq!(ended.silently(), "result 0\n");
}

#[test]
fn a_child_that_begins_cuda_itself_ends_like_any() {
    for _ in 0..5 {
        let ended = capped("20", &words("anew", &[50 * US]));
        assert_eq!(ended.silently(), "");
    }
}

#[test]
fn a_program_ends_while_a_thread_waits_for_its_turn() {
    // 200 ms at one percent are repaid after twenty seconds.
    let ended = capped("1", &words("waits", &[MS, 200 * MS]));
    assert_eq!(ended.silently(), "");
}

#[test]
fn a_handler_that_joins_a_waiting_thread_is_not_kept_for_ever() {
    // CUDA_ERROR_DEINITIALIZED.
    let ended = capped("1", &words("joins", &[MS, 200 * MS]));
    assert_eq!(ended.silently(), "result 4\n");
}

#[test]
fn calls_behind_the_drivers_teardown_have_the_drivers_answer() {
    // CUDA_ERROR_DEINITIALIZED, which a real driver answers there.
    let gpu = Gpu::new("exit=refuse");
    let ended = capped_on(&gpu, "50", &words("after", &[MS]));
    assert_eq!(ended.silently(), format!("{}\n", "4 ".repeat(12)));
}

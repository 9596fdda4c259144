//! Programs that can open no file any more, though they have closed none of the library's: at the
//! limit of open files, in another root, as another user. They get memory up to their limit, and
//! no more.

use gpushare_tests::runnable::not_runnable_here;
use gpushare_tests::{Alone, Daemon, Gpu, Guest, MIB, clients};

/// Numbers below this are the program's.
const LOW: u32 = 200;
const LIMIT: &str = "2GiB";
const PART: u64 = 200 * MIB;

/// Tests `event` without a daemon and with one.
fn both(event: &str) {
    let gpu = Gpu::new("mem=4GiB");
    let alone = Alone::on(&gpu);
    grows_after(event, alone.client(&["--mem-limit", LIMIT], "closer"));
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", LIMIT)]);
    grows_after(
        event,
        Guest::start(tenant.command(&clients::compile("closer", &[]))),
    );
}

/// Credit grows after `event`, up to the limit.
fn grows_after(event: &str, guest: Guest) {
    let mut guest = guest.started();
    guest.does(&format!("alloc {}", 64 * MIB));
    guest.does(event);
    for _ in 0..3 {
        guest.does(&format!("alloc {PART}"));
    }
    assert_eq!(guest.ask(&format!("fill {PART}")), "fill 6 2", "the limit");
    guest.does("free 1");
    guest.does(&format!("alloc {PART}"));
    guest.finish().silently();
}

fn as_root(test: &str, event: &str) {
    if nix::unistd::geteuid().is_root() {
        both(event);
    } else {
        not_runnable_here(test, "only root may do that");
    }
}

#[test]
fn a_program_at_its_limit_of_open_files_gets_its_memory() {
    both("table");
}

#[test]
fn a_program_that_left_its_root_gets_its_memory() {
    as_root("a_program_that_left_its_root_gets_its_memory", "chroot");
}

#[test]
fn a_program_that_became_another_user_gets_its_memory() {
    as_root(
        "a_program_that_became_another_user_gets_its_memory",
        "setuid 65534",
    );
}

/// The library's numbers are high, also after its lock was taken many times.
#[test]
fn no_low_number_becomes_the_librarys() {
    let gpu = Gpu::new("mem=4GiB");
    let alone = Alone::on(&gpu);
    stays_high(alone.client(&["--mem-limit", LIMIT], "closer"));
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", LIMIT)]);
    stays_high(Guest::start(
        tenant.command(&clients::compile("closer", &[])),
    ));
}

fn stays_high(mut guest: Guest) {
    let lowest = |guest: &mut Guest| {
        let answer = guest.ask("lowest");
        let number = answer.strip_prefix("lowest ").expect("its answer");
        number.parse::<u32>().expect("a number")
    };
    assert_eq!(lowest(&mut guest), 9999, "the library has not begun");
    guest.does("init");
    for _ in 0..3 {
        guest.does(&format!("alloc {PART}"));
        let number = lowest(&mut guest);
        assert!((LOW..9999).contains(&number), "{number}");
    }
    guest.finish().silently();
}

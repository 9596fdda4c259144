//! Programs under a limit on the size of files (`ulimit -f`), which batch systems and CI set. The
//! kernel ends a program that makes a file longer.

use std::process::Command;

use gpushare_tests::{Alone, Gpu, Guest, MIB, clients};

const FLAGS: [&str; 2] = ["--mem-limit", "1GiB"];

/// The same command where files have 50 KiB at most, less than a tenant's page has.
fn limited(command: &Command) -> Command {
    let mut limited = Command::new("sh");
    limited
        .arg("-c")
        .arg("ulimit -f 100; exec \"$0\" \"$@\"")
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

/// The quota client in a tenant without a daemon.
fn client(alone: &Alone<'_>) -> Command {
    alone.command(&FLAGS, &clients::compile("quota", &[]))
}

#[test]
fn a_program_that_may_make_no_page_is_told_so_and_goes_on() {
    let gpu = Gpu::new("mem=4GiB");
    // The software GPU has its files from the first program on.
    let first = Alone::on(&gpu);
    let mut before = Guest::start(client(&first));
    assert_eq!(before.ask("init"), "init 0");
    let alone = Alone::on(&gpu);
    let mut guest = Guest::start(limited(&client(&alone)));
    assert_ne!(guest.ask("init"), "init 0");
    let ended = guest.finish();
    assert!(ended.status.success(), "{ended:?}");
    assert!(ended.stderr.contains("File too large"), "{ended:?}");
    before.finish().silently();
}

#[test]
fn a_program_joins_a_page_that_is_longer_than_its_files_may_be() {
    let gpu = Gpu::new("mem=4GiB");
    let alone = Alone::on(&gpu);
    let mut first = Guest::start(client(&alone));
    assert_eq!(first.ask("init"), "init 0");
    let mut second = Guest::start(limited(&client(&alone)));
    assert_eq!(second.ask("init"), "init 0");
    assert_eq!(second.ask(&format!("alloc {}", 64 * MIB)), "alloc 0");
    second.finish().silently();
    first.finish().silently();
}

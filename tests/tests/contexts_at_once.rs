//! Programs that start together, and programs that start after another one has just died. An
//! allocation that fits is not refused: a context is measured when it is created, and a dead
//! process's memory is not charged to live ones.

use gpushare_tests::{Daemon, GIB, Gpu, Guest, MIB};

const CROWD: usize = 16;

/// All start at once and each allocates a little. Returns their answers.
fn crowd(gpu: &Gpu, limits: &[(&str, &str)]) -> Vec<(String, String)> {
    let daemon = Daemon::start(gpu);
    let tenant = daemon.tenant("crowd", limits);
    let mut guests: Vec<Guest> = (0..CROWD).map(|_| tenant.client("quota", &[])).collect();
    for guest in &mut guests {
        guest.send("init");
    }
    let mut answers = Vec::new();
    for guest in &mut guests {
        let started = guest.line();
        answers.push((started, guest.ask(&format!("alloc {}", 64 * MIB))));
    }
    answers
}

#[test]
fn with_fail_sixteen_programs_that_fit_all_start() {
    let gpu = Gpu::new("mem=4GiB");
    let limits = [
        ("GPUSHARE_MEM_REQUEST", "64MiB"),
        ("GPUSHARE_MEM_LIMIT", "4GiB"),
        ("GPUSHARE_ON_COLLISION", "fail"),
    ];
    for (started, allocated) in crowd(&gpu, &limits) {
        assert_eq!((&*started, &*allocated), ("init 0", "alloc 0"));
    }
}

#[test]
fn with_fail_of_programs_that_do_not_fit_some_are_refused() {
    let gpu = Gpu::new("mem=1GiB");
    let limits = [
        ("GPUSHARE_MEM_REQUEST", "64MiB"),
        ("GPUSHARE_MEM_LIMIT", "1GiB"),
        ("GPUSHARE_ON_COLLISION", "fail"),
    ];
    let answers = crowd(&gpu, &limits);
    let refused = answers.iter().filter(|(_, it)| *it != "alloc 0").count();
    assert!((1..CROWD).contains(&refused), "{answers:?}");
}

#[test]
fn memory_of_a_sibling_that_just_died_is_available() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "512MiB")]);
    let alloc = format!("alloc {}", 400 * MIB);
    let mut survivor = tenant.client("quota", &[]).started();
    for round in 0..20 {
        let mut dying = tenant.client("quota", &[]).started();
        assert_eq!(dying.ask(&alloc), "alloc 0", "round {round}");
        dying.kill();
        assert_eq!(survivor.ask(&alloc), "alloc 0", "round {round}");
        assert_eq!(survivor.ask("free 1"), "free 0");
    }
}

#[test]
fn memory_of_a_live_sibling_counts_against_the_limit() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "512MiB")]);
    let [mut a, mut b] = [(); 2].map(|()| tenant.client("quota", &[]).started());
    assert_eq!(a.ask(&format!("alloc {}", 400 * MIB)), "alloc 0");
    assert_eq!(b.ask(&format!("alloc {}", 400 * MIB)), "alloc 2");
    assert_eq!(b.ask(&format!("alloc {}", 100 * MIB)), "alloc 0");
}

#[test]
fn a_program_that_became_another_one_registers_as_that() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
    let client = gpushare_tests::clients::compile("quota", &[]);
    // The shell opens no GPU; the program that replaces it, twice, does.
    let mut command = tenant.command(std::path::Path::new("/bin/sh"));
    let client = client.display();
    command.args(["-c", &format!("{client}; exec {client}")]);
    let mut guest = Guest::start(command).started();
    assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0");
    daemon.until("one", |row| row.charged == GIB && row.processes.len() == 1);
    drop(guest);
}

//! Several processes on one machine: no page leaks, no process sees another's bytes, and no memory
//! returns early.

mod common;

use common::{Guest, Machine};
use softgpu::spec::PAGE;

/// More operations than the longest delayed return.
const ENOUGH: usize = 10;

#[test]
fn a_killed_process_is_listed_until_its_memory_has_returned() {
    let machine = Machine::new("killed", "mem=256MiB");
    let mut guest = machine.guest();
    guest.must("take 10");
    guest.must("note 1000");
    let pid = i32::try_from(guest.child.id()).unwrap();
    let lives = machine.now();
    assert_eq!(
        (lives.used_physical, lives.requested_now),
        (10 * PAGE, 1000)
    );
    assert!(lives.processes[0].alive && lives.processes[0].pid == pid);

    guest.kill();
    let dead = machine.after(1);
    assert_eq!(
        (dead.used_physical, dead.requested_now),
        (10 * PAGE, 1000),
        "freed memory returns late"
    );
    assert!(!dead.processes[0].alive);
    assert_eq!(
        (dead.processes[0].pid, dead.processes[0].physical_total()),
        (pid, 10 * PAGE)
    );

    let gone = machine.after(ENOUGH);
    assert_eq!((gone.used_physical, gone.requested_now), (0, 0));
    assert!(gone.processes.is_empty());
    assert_eq!(
        (gone.used_peak, gone.requested_peak),
        (10 * PAGE, 1000),
        "the peaks stay"
    );
}

#[test]
fn freed_memory_returns_late_but_never_fails_an_allocation_that_fits() {
    let machine = Machine::new("late", "mem=64MiB");
    let mut guest = machine.guest();
    guest.must("take 30");
    guest.must("give");
    assert_eq!(machine.now().late, 30 * PAGE, "not back yet");
    let mut other = machine.guest();
    other.must("take 32");
    other.must("give");
    other.kill();
    guest.must("take 32");
    assert_eq!(guest.tell("take 1"), "err 2", "the device is full");
}

#[test]
fn a_forked_child_keeps_the_memory_of_its_dead_parent() {
    let machine = Machine::new("forked", "mem=64MiB");
    let mut parent = machine.guest();
    parent.must("take 32");
    parent.must("fork");
    let childs_stdin = parent.kill();
    let held = machine.after(ENOUGH);
    assert_eq!(held.used_physical, 32 * PAGE);
    assert!(held.processes[0].alive, "the child holds it");
    let mut other = machine.guest();
    assert_eq!(other.tell("take 1"), "err 2");

    drop(childs_stdin);
    // The child exits when its stdin is closed: wait for that event, not for a time.
    while other.tell("take 1") != "ok" {
        std::thread::yield_now();
    }
}

#[test]
fn only_the_same_process_may_see_the_old_bytes_of_a_page() {
    let machine = Machine::new("bytes", "mem=64MiB");
    let mut first = machine.guest();
    first.must("take 32");
    first.must("put 7");
    first.must("give");
    first.must("take 32");
    assert_eq!(
        first.must("get"),
        "same 7",
        "memory is not erased within one process"
    );
    first.must("give");

    let mut second = machine.guest();
    second.must("take 32");
    assert_eq!(second.must("get"), "same 0");
    second.must("put 9");
    second.kill();
    first.must("take 32");
    assert_eq!(first.must("get"), "same 0");
}

#[test]
fn shared_pages_live_until_the_last_holder_is_gone() {
    let machine = Machine::new("share", "mem=64MiB");
    let mut maker = machine.guest();
    maker.must("take 4");
    maker.must("note 100");
    let id = maker.must("share");
    let mut importer = machine.guest();
    importer.must(&format!("join {id}"));
    maker.kill();
    let held = machine.after(ENOUGH);
    assert_eq!((held.used_physical, held.requested_now), (4 * PAGE, 100));
    importer.must("drop");
    assert_eq!(machine.after(ENOUGH).used_physical, 0);
    assert_eq!(importer.tell(&format!("join {id}")), "err 1");
}

#[test]
fn a_name_in_use_accepts_equal_values_and_refuses_other_values() {
    let machine = Machine::new("conflict", "mem=64MiB");
    let name = machine.spec.name.clone().unwrap();
    assert_eq!(
        Guest::start(&format!("name={name},mem=128MiB")).greeting,
        "err 1"
    );
    assert_eq!(
        Guest::start(&format!("mem=65536Ki,name={name}")).greeting,
        "ok"
    );
}

#[test]
fn kills_at_random_leave_no_page_behind() {
    let machine = Machine::new("kills", "mem=128MiB");
    let mut survivor = machine.guest();
    let rounds = 60;
    for round in 0..rounds {
        let mut spinners: Vec<Guest> = (0..3).map(|_| machine.guest()).collect();
        spinners.iter_mut().for_each(|guest| guest.send("spin"));
        // The survivor's operations are the clock: a different number of them each round.
        for _ in 0..round * 7 % 40 {
            survivor.must("free");
        }
        spinners.into_iter().for_each(|guest| drop(guest.kill()));
    }
    let end = machine.after(ENOUGH);
    assert_eq!(end.processes, []);
    assert_eq!((end.used_physical, end.late, end.requested_now), (0, 0, 0));
    survivor.must("take 64");
    assert_eq!(survivor.tell("take 1"), "err 2");
}

#[test]
fn the_last_exit_removes_the_machine_and_a_dead_machine_is_replaced() {
    let name = format!("test-last-{}", std::process::id());
    let look = || softgpu::inspect::snapshot(&name).expect("readable");
    let mut first = Guest::start(&format!("name={name},mem=64MiB"));
    first.must("take 5");
    assert_eq!(look().map(|machine| machine.open_by), Some(1));
    first.end();
    assert_eq!(look(), None);

    let mut killed = Guest::start(&format!("name={name},mem=64MiB"));
    killed.must("take 5");
    killed.kill();
    assert_eq!(look(), None, "no process has the machine open");
    let next = Guest::start(&format!("name={name},mem=96MiB"));
    assert_eq!(next.greeting, "ok", "a new machine with its own values");
    assert_eq!(look().unwrap().devices[0].used_physical, 0);
}

#[test]
fn a_process_killed_during_open_does_not_break_the_machine() {
    let name = format!("test-opening-{}", std::process::id());
    let spec = format!("name={name},mem=64MiB");
    for round in 0..40_u64 {
        // No other process has it open: each victim creates it, or takes over an incomplete
        // machine.
        let victim = Guest::launch(&spec);
        // Any work serves to let the victim get a little further each round.
        (0..round * 1500).for_each(|step| drop(std::hint::black_box(step.to_string())));
        victim.kill();
    }
    let mut last = Guest::start(&spec);
    assert_eq!(last.greeting, "ok");
    last.must("take 32");
}

#[test]
fn many_processes_open_one_machine_at_once() {
    let machine = Machine::new("many", "mem=128MiB");
    let mut guests: Vec<Guest> = (0..48)
        .map(|_| Guest::launch(&machine.spec.to_string()))
        .collect();
    for guest in &mut guests {
        guest.greet();
        assert_eq!(guest.greeting, "ok");
        guest.must("take 1");
    }
    let now = machine.now();
    assert_eq!((now.used_physical, now.processes.len()), (48 * PAGE, 48));
    drop(guests);
    assert_eq!(machine.after(ENOUGH).used_physical, 0);
}

//! Captures, and the calls that the library makes to the driver on the program's behalf. They do
//! not affect a capture. Memory is charged until its stream reaches the free. A thread that
//! captures never waits at the gate; every other thread does.

use gpushare_tests::{Daemon, GIB, Gpu, Guest, MIB, Tenant, clients};

const LIMIT: u64 = 256 * MIB;

fn started(gpu: &Gpu) -> Guest {
    Guest::client(gpu, &["--mem-limit", "256MiB"], "captures").started()
}

/// Makes the second thread execute a command.
#[track_caller]
fn other(guest: &mut Guest, command: &str) {
    let name = command.split(' ').next().unwrap_or_default();
    assert_eq!(
        guest.ask(&format!("other {command}")),
        format!("{name} 0"),
        "{command}"
    );
}

/// The charge as the program sees it.
fn charged(guest: &mut Guest) -> u64 {
    let answer = guest.ask("info");
    let words: Vec<&str> = answer.split(' ').collect();
    assert_eq!(words[3], "0", "{answer}");
    LIMIT - words[1].parse::<u64>().expect("a number")
}

/// The bytes that the process has requested and not freed, by softgpu's counters.
fn truth(gpu: &Gpu) -> u64 {
    gpu.truth().requested_now
}

/// From now on the second thread's own calls disturb no capture of the first: the driver refuses
/// work in the order of a stream beside a global capture.
fn other_is_apart(guest: &mut Guest) {
    assert_eq!(guest.ask("other mode 1"), "mode 0");
}

#[test]
fn async_frees_leave_another_threads_capture_valid() {
    for mode in ["0", "1", "2"] {
        let gpu = Gpu::new("");
        let mut guest = started(&gpu);
        other_is_apart(&mut guest);
        guest.does(&format!("begin {mode} 1"));
        other(&mut guest, "pairs 200 2");
        other(&mut guest, "spread 200");
        guest.answers("status 1", "1");
        guest.does("end 1");
        guest.does("sync-all");
        assert_eq!(charged(&mut guest), truth(&gpu), "mode {mode}");
        guest.finish().silently();
    }
}

#[test]
fn async_frees_of_the_capturing_thread_leave_its_capture_valid() {
    for mode in ["0", "1", "2"] {
        let gpu = Gpu::new("");
        let mut guest = started(&gpu);
        guest.does(&format!("begin {mode} 1"));
        guest.does("mode 2");
        guest.does("pairs 200 2");
        guest.does("mode 0");
        assert_eq!(charged(&mut guest), truth(&gpu), "mode {mode}");
        guest.answers("status 1", "1");
        guest.does("end 1");
        guest.does("sync-all");
        assert_eq!(charged(&mut guest), truth(&gpu), "mode {mode}");
        guest.finish().silently();
    }
}

/// At least sixty-four frees, so that the library checks its events while the stream waits for an
/// operation that does not complete.
#[test]
fn an_incomplete_free_stays_charged_while_others_capture() {
    for count in [65, 200] {
        let gpu = Gpu::new("");
        let mut guest = started(&gpu);
        guest.does(&format!("private {count} 2"));
        let held = truth(&gpu);
        assert!(held >= count * MIB && charged(&mut guest) == held);
        guest.does("block 2");
        other_is_apart(&mut guest);
        guest.does("begin 0 1");
        other(&mut guest, "free-all 0 2");
        assert_eq!(truth(&gpu), held, "the stream has reached no free");
        assert_eq!(charged(&mut guest), held);
        guest.answers("status 1", "1");
        guest.does("end 1");
        guest.does("unblock");
        guest.does("sync 2");
        assert_eq!((charged(&mut guest), truth(&gpu)), (0, 0));
        guest.finish().silently();
    }
}

/// The opposite: memory whose free the stream has reached is available to the next allocation,
/// without a synchronisation.
#[test]
fn a_complete_free_is_credited_when_memory_is_needed() {
    for capture in [false, true] {
        let gpu = Gpu::new("");
        let mut guest = started(&gpu);
        if capture {
            guest.does("begin 1 1");
        }
        for number in 0..6 {
            let stream = 2 + number % 3;
            other(&mut guest, &format!("async {} {stream}", 200 * MIB));
            other(&mut guest, &format!("free {number} {stream}"));
        }
        other(&mut guest, &format!("linear {}", 200 * MIB));
        if capture {
            guest.answers("status 1", "1");
            guest.does("end 1");
        }
        assert!(gpu.truth().requested_peak <= LIMIT);
        guest.finish().silently();
    }
}

/// Frees under way would make room. How long they are waited for is told by how often the driver is
/// asked about them meanwhile.
#[test]
fn a_thread_that_captures_does_not_wait_for_frees_under_way() {
    const PEAK: u64 = 200 * MIB;
    let gpu = Gpu::new("");
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let mut command = gpushare_tests::guest::command(&gpu, &["--mem-limit", "256MiB"]);
    command.arg(clients::compile("captures", &[]));
    command.env("SOFTGPU_TRACE", trace.path());
    let mut guest = Guest::start(command).started();
    let refused = |guest: &mut Guest| {
        let asked = || {
            let text = std::fs::read_to_string(trace.path()).expect("text");
            text.lines().count()
        };
        let before = asked();
        assert_eq!(guest.ask(&format!("linear {PEAK}")), REFUSED);
        asked() - before
    };
    guest.does(&format!("async {PEAK} 2"));
    guest.does("block 2");
    guest.does("free 0 2");
    let waits = refused(&mut guest);
    for begin in ["begin 2 1", "begin-to 2 1"] {
        guest.does(begin);
        let captures = refused(&mut guest);
        assert!(captures * 4 < waits, "{begin}: {captures} of {waits} calls");
        guest.answers("status 1", "1");
        guest.does("end 1");
    }
    guest.does("unblock");
    assert_eq!(guest.ask(&format!("linear {PEAK}")), "linear 0");
    guest.finish().silently();
}

/// A query of the legacy stream would end the capture of a blocking stream, in every mode.
#[test]
fn legacy_stream_frees_are_not_queried_during_a_blocking_capture() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu);
    guest.does("blocking 1");
    guest.does("pairs 5 0");
    guest.does("begin 1 1");
    other(&mut guest, "pairs 5 2");
    other(&mut guest, "sync 2");
    guest.answers("status 1", "1");
    guest.does("end 1");
    // The opposite: without a capture the library finds the frees complete.
    guest.does("private 5 0");
    guest.does("free-all 0 0");
    guest.does("sync-all");
    assert_eq!((charged(&mut guest), truth(&gpu)), (0, 0));
    guest.finish().silently();
}

#[test]
fn a_capture_survives_queries_and_trims_of_pools() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu);
    other_is_apart(&mut guest);
    guest.does("begin 0 1");
    for number in 0..8 {
        other(&mut guest, &format!("async {} 2", 100 * MIB));
        other(&mut guest, &format!("free {number} 2"));
        other(&mut guest, &format!("pairs 3 {}", 2 + number % 3));
    }
    let _ = charged(&mut guest);
    guest.answers("status 1", "1");
    guest.does("end 1");
    assert!(gpu.truth().requested_peak <= LIMIT);
    guest.does("sync-all");
    assert_eq!(charged(&mut guest), truth(&gpu));
    guest.finish().silently();
}

/// The library asks nothing about a stream that a capture may refuse to answer: its number.
#[test]
fn a_global_capture_survives_the_captures_of_other_threads() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu);
    guest.does("begin 0 1");
    other(&mut guest, "begin 0 2");
    guest.answers("status 1", "1");
    other(&mut guest, "end 2");
    guest.answers("status 1", "1");
    guest.does("end 1");
    guest.finish().silently();
}

/// So it is above the limit, where the driver is not asked for the memory.
#[test]
fn ordered_memory_over_quota_beside_a_global_capture_is_refused() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu);
    let wanted = format!("other async {} 2", 2 * LIMIT);
    assert_eq!(guest.ask(&wanted), "async 2");
    guest.does("begin 0 1");
    assert_eq!(guest.ask(&wanted), "async 900");
    guest.answers("status 1", "2");
    assert_eq!(guest.ask("end 1"), "end 901");
    guest.does("begin 1 1");
    assert_eq!(guest.ask(&wanted), "async 2");
    guest.answers("status 1", "1");
    guest.does("end 1");
    guest.finish().silently();
}

/// The opposite: what the driver refuses is refused, and ends the capture as there.
#[test]
fn ordered_memory_beside_a_global_capture_is_refused() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu);
    guest.does("begin 0 1");
    assert_eq!(guest.ask("other pairs 1 2"), "pairs 900");
    guest.answers("status 1", "2");
    assert_eq!(guest.ask("end 1"), "end 901");
    guest.does("private 3 2");
    guest.does("begin 0 1");
    assert_eq!(guest.ask("other free-all 0 2"), "free-all 900");
    guest.answers("status 1", "2");
    assert_eq!(guest.ask("end 1"), "end 901");
    guest.does("free-all 0 2");
    guest.does("sync-all");
    assert_eq!((charged(&mut guest), truth(&gpu)), (0, 0));
    guest.finish().silently();
}

/// The library's event that waits for room in a full stream does not block other threads from
/// freeing. Whether the event or the program's own free meets the full stream depends on how many
/// operations are in it (softgpu takes 1,024), so several numbers are tried. The driver itself may
/// block other threads (`room=locked`), so the test switches that off.
#[test]
fn a_full_stream_does_not_block_frees_in_other_streams() {
    for filled in [957, 958, 959, 960] {
        let gpu = Gpu::new("room=free");
        let mut guest = started(&gpu);
        guest.does("private 100 2");
        guest.does("block 2");
        guest.does(&format!("fill {filled} 2"));
        guest.send("start free-all 0 2");
        for _ in 0..50 {
            guest.does("pairs 70 3");
        }
        guest.does("unblock");
        assert_eq!(guest.ask("ended"), "free-all 0");
        guest.does("sync-all");
        assert_eq!(charged(&mut guest), truth(&gpu));
        guest.finish().silently();
    }
}

#[test]
fn frees_in_a_destroyed_stream_stay_charged_until_they_complete() {
    for count in [1, 63, 200] {
        let gpu = Gpu::new("");
        let mut guest = started(&gpu);
        guest.does(&format!("private {count} 2"));
        let held = truth(&gpu);
        guest.does("block 2");
        guest.does("free-all 0 2");
        guest.does("destroy 2");
        guest.does("pairs 100 3");
        guest.does("sync 3");
        assert_eq!(charged(&mut guest), truth(&gpu));
        assert!(charged(&mut guest) >= held);
        guest.does("unblock");
        guest.does("sync-all");
        assert_eq!((charged(&mut guest), truth(&gpu)), (0, 0), "{count}");
        guest.finish().silently();
    }
}

const GRANTED: &str = "linear 0";
const REFUSED: &str = "linear 2";

fn wanted() -> String {
    format!("linear {}", 10 * GIB)
}

/// A device of 16 GiB, of which `a` holds 10. `b` may wait an hour for as much.
fn crowded(daemon: &Daemon) -> (Tenant, Tenant, Guest, Guest) {
    let limits = [
        ("GPUSHARE_MEM_REQUEST", "1GiB"),
        ("GPUSHARE_MEM_LIMIT", "12GiB"),
        ("GPUSHARE_WAIT_TIMEOUT", "1h"),
    ];
    let (first, second) = (daemon.tenant("a", &limits), daemon.tenant("b", &limits));
    let mut a = first.client("captures", &[]).started();
    let b = second.client("captures", &[]).started();
    assert_eq!(a.ask(&wanted()), GRANTED);
    (first, second, a, b)
}

/// `b` waits for the memory that `command` requests, and gets it when `a` frees. Then `b` frees it
/// again, as its allocation `number`.
fn waits_and_is_served(daemon: &Daemon, a: &mut Guest, b: &mut Guest, number: u32) {
    daemon.until_one_waits("b");
    a.does(&format!("now {number}"));
    assert_eq!(b.ask("ended"), GRANTED);
}

#[test]
fn a_thread_that_captures_on_a_non_blocking_stream_never_waits() {
    let daemon = Daemon::start(&Gpu::new("mem=16GiB"));
    let (_first, _second, mut a, mut b) = crowded(&daemon);
    for begin in ["begin 2 1", "begin-to 2 1"] {
        b.does(begin);
        assert_eq!(b.ask(&wanted()), REFUSED, "{begin}");
        b.answers("status 1", "1");
        b.does("end 1");
    }
    b.does("begin 2 1");
    b.does("fork 1 2");
    assert_eq!(b.ask(&wanted()), REFUSED, "with a stream that joined");
    b.does("join 2 1");
    b.does("destroy 2");
    assert_eq!(b.ask(&wanted()), REFUSED, "and that is gone");
    b.does("end 1");
    // The other thread makes the waiting call: the first thread must keep answering the test.
    b.send(&format!("start {}", wanted()));
    waits_and_is_served(&daemon, &mut a, &mut b, 0);
}

#[test]
fn a_thread_waits_while_another_thread_captures() {
    let daemon = Daemon::start(&Gpu::new("mem=16GiB"));
    let (_first, _second, mut a, mut b) = crowded(&daemon);
    for mode in ["1", "2"] {
        b.does(&format!("begin {mode} 1"));
        b.send(&format!("start {}", wanted()));
        let number = if mode == "1" { 0 } else { 1 };
        waits_and_is_served(&daemon, &mut a, &mut b, number);
        b.answers("status 1", "1");
        b.does("end 1");
        b.does(&format!("now {number}"));
        assert_eq!(a.ask(&wanted()), GRANTED);
    }
}

/// However a capture ends, the thread that began it waits again.
#[test]
fn a_thread_waits_again_after_its_capture() {
    let endings: [&[&str]; 4] = [
        // Invalidated by itself, then ended.
        &["begin 0 1", "linear 4096", "end 1"],
        // Its stream is destroyed.
        &["begin 2 1", "destroy 1", "make 1"],
        // Ended by another thread, which only a relaxed one allows.
        &["begin 2 1", "start end 1", "ended"],
        // Not joined.
        &["begin 2 1", "fork 1 2", "fill 1 2", "end 1"],
    ];
    for ending in endings {
        let daemon = Daemon::start(&Gpu::new("mem=16GiB"));
        let (_first, _second, mut a, mut b) = crowded(&daemon);
        for command in ending {
            if command.starts_with("start") {
                b.send(command);
            } else {
                b.ask(command);
            }
        }
        b.send(&wanted());
        daemon.until_one_waits("b");
        a.does("now 0");
        assert_eq!(b.line(), GRANTED, "{ending:?}");
    }
}

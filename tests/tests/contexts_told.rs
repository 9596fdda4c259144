//! The library tells a daemon of its contexts, also across a change of daemons. The test plays the
//! daemon.

use std::fs;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};

use gpushare_protocol::wire::{Refusal, Reply, Request};
use gpushare_tests::{Dealer, GIB, Gpu, Guest, clients, links, until};

/// From now on every request for memory is granted, and is heard.
fn heard(dealer: &Dealer) -> Receiver<Request> {
    let (says, said) = channel();
    dealer.bank(move |asked| {
        says.send(asked.clone()).ok()?;
        Some(Reply::Granted { grant: GIB })
    });
    said
}

fn contexts(said: &Receiver<Request>) -> [usize; 2] {
    let all: Vec<Request> = said.try_iter().collect();
    let count = |is: fn(&Request) -> bool| all.iter().filter(|one| is(one)).count();
    [
        count(|one| matches!(one, Request::Open { .. })),
        count(|one| matches!(one, Request::OpenMore { .. })),
    ]
}

#[test]
fn each_context_but_the_first_is_asked_for_by_itself() {
    let dealer = Dealer::start(&Gpu::new(""));
    let said = heard(&dealer);
    let mut guest = dealer.client("contexts");
    guest.does("init");
    assert_eq!(contexts(&said), [1, 0]);
    for command in ["create", "retain"] {
        guest.does(command);
        assert_eq!(contexts(&said), [0, 1], "{command}");
        dealer.hears_some(|said| matches!(said, Request::OpenDone { .. }).then_some(()));
    }
    guest.does("retain");
    assert_eq!(contexts(&said), [0, 0], "the primary one is there already");
    guest.does("release");
    guest.does("release");
    guest.does("destroy 1");
    let none = Request::NoContext { device_index: 0 };
    assert!(!dealer.said().contains(&none), "one is left");
    guest.does("destroy 1");
    dealer.hears(&none);
    guest.does("create");
    assert_eq!(contexts(&said), [0, 1], "after the last one as well");
    guest.finish().silently();
}

#[test]
fn the_primary_context_that_a_green_one_brings_is_told_as_made() {
    for begins in ["bare 0", "init 0"] {
        let dealer = Dealer::start(&Gpu::new(""));
        let mut guest = dealer.client("green");
        guest.does(begins);
        for line in ["make 0", "retain", "make 1"] {
            guest.does(line);
        }
        until("it is told", || dealer.contexts_made() > 0);
        guest.finish().silently();
        assert_eq!(dealer.contexts_made(), 1, "{begins}");
    }
}

/// Calls of the client with the driver's answers to them.
const WRONG: [(&str, u32); 7] = [
    ("wrong", 1),
    ("waits", 1),
    ("device", 101),
    ("nowhere", 1),
    ("unplaced", 1),
    ("affinity", 224),
    ("graphics", 801),
];

#[test]
fn calls_the_driver_refuses_answer_as_bare_where_there_is_no_room() {
    for (begins, asked) in [("bare", "retain"), ("init", "create")] {
        let dealer = Dealer::start(&Gpu::new("driver=13000"));
        let mut guest = dealer.client("contexts");
        guest.does(begins);
        // A daemon that counts what there is refuses an ask that may not wait in the same way.
        dealer.bank(|asked| match asked {
            Request::Open { .. } | Request::OpenMore { .. } => {
                Some(Reply::Refused(Refusal::NoMemory))
            }
            _ => None,
        });
        for (command, answer) in WRONG {
            let answer = format!("{command} {answer}");
            assert_eq!(guest.ask(command), answer, "{begins}");
        }
        assert_eq!(guest.ask("create"), "create 2", "nothing else is wrong");
        assert_eq!(guest.ask(asked), format!("{asked} 2"));
        let _said = heard(&dealer);
        guest.does(asked);
        guest.finish().silently();
    }
}

/// A driver is asked for a green context without room only where it should refuse the flags.
#[test]
fn a_green_context_without_a_default_stream_is_right_since_cuda_13_3() {
    for (driver, answer, asked) in [(13_020, "plain 1", 1), (13_030, "plain 2", 0)] {
        let dealer = Dealer::start(&Gpu::new(&format!("driver={driver}")));
        let trace = tempfile::NamedTempFile::new().expect("a file");
        let mut command = dealer.command(&clients::compile("green", &[]));
        command.env("LD_LIBRARY_PATH", links());
        command.env("SOFTGPU_TRACE", trace.path());
        let mut guest = Guest::start(command);
        guest.does("bare 0");
        dealer.bank(|asked| match asked {
            Request::Open { .. } => Some(Reply::Refused(Refusal::NoMemory)),
            _ => None,
        });
        assert_eq!(guest.ask("plain 0"), answer, "{driver}");
        let _said = heard(&dealer);
        guest.does("make 0");
        guest.finish().silently();
        let calls = fs::read_to_string(trace.path()).expect("a trace");
        let made = calls.matches("cuGreenCtxCreate").count();
        assert_eq!(made, asked + 1, "{driver}");
    }
}

#[test]
fn an_ask_that_the_driver_refuses_does_not_wait_for_room() {
    let dealer = Dealer::start(&Gpu::new(""));
    let mut guest = dealer.client("contexts");
    guest.does("init");
    let (says, said) = channel();
    dealer.bank(move |asked| {
        let Request::OpenMore { patience_ms, .. } = asked else {
            return None;
        };
        says.send(*patience_ms).ok()?;
        Some(Reply::Refused(Refusal::NoMemory))
    });
    assert_eq!(guest.ask("wrong"), "wrong 1");
    assert_eq!(said.try_iter().collect::<Vec<_>>(), [Some(0)]);
    assert_eq!(guest.ask("create"), "create 2");
    let waits: Vec<Option<u64>> = said.try_iter().collect();
    assert!(matches!(waits[..], [Some(1..)]), "{waits:?}");
    guest.finish().silently();
}

#[test]
fn an_ask_for_a_context_that_is_given_up_is_done_and_others_are_cancelled() {
    let dealer = Dealer::start(&Gpu::new("mem=1GiB"));
    dealer.page().header.wait_ms.store(1, Ordering::Relaxed);
    let mut guest = dealer.client("contexts");
    guest.does("init");
    // A daemon that hangs: it may have granted the ask by the time it hears more.
    dealer.bank(|_| None);
    assert_eq!(guest.ask("wrong"), "wrong 1", "that one may not wait");
    dealer.hears_some(|said| {
        assert!(!matches!(said, Request::Cancel { .. }));
        matches!(said, Request::OpenDone { .. }).then_some(())
    });
    let more_than_there_is = format!("alloc {}", 2 * GIB);
    assert_eq!(guest.ask(&more_than_there_is), "alloc 2");
    dealer.hears_some(|said| matches!(said, Request::Cancel { .. }).then_some(()));
    guest.finish().silently();
}

/// A program whose primary context takes until the file is gone.
fn held(dealer: &Dealer) -> (Guest, tempfile::TempPath) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let file = file.into_temp_path();
    let mut command = dealer.command(&clients::compile("contexts", &[]));
    command.env("LD_LIBRARY_PATH", links()).env(
        "SOFTGPU_HOLD",
        format!("cuDevicePrimaryCtxRetain:{}", file.display()),
    );
    (Guest::start(command), file)
}

fn until_it_makes(file: &tempfile::TempPath) {
    until("the driver makes it", || {
        fs::metadata(file).expect("a file").len() > 0
    });
}

/// The same, and it is its second one.
fn making(dealer: &Dealer) -> (Guest, tempfile::TempPath) {
    let (mut guest, file) = held(dealer);
    guest.does("init");
    guest.send("retain");
    until_it_makes(&file);
    (guest, file)
}

#[test]
fn no_context_is_said_only_when_no_thread_makes_the_first_one() {
    let dealer = Dealer::start(&Gpu::new(""));
    let (mut guest, file) = held(&dealer);
    guest.does("bare");
    guest.does("start 1");
    until_it_makes(&file);
    for _ in 0..2 {
        assert_eq!(guest.ask("wrong"), "wrong 1");
        // Before the end of the second one is heard all that follows from the first one's is.
        dealer.hears_some(|said| {
            assert!(!matches!(said, Request::NoContext { .. }), "one is made");
            matches!(said, Request::OpenDone { .. }).then_some(())
        });
    }
    drop(file);
    guest.does("join");
    guest.does("release");
    dealer.hears(&Request::NoContext { device_index: 0 });
    guest.finish().silently();
}

#[test]
fn threads_that_retain_one_primary_context_ask_once() {
    for (begins, asks) in [("bare", [1, 0]), ("init", [0, 1])] {
        let dealer = Dealer::start(&Gpu::new(""));
        let said = heard(&dealer);
        let (mut guest, file) = held(&dealer);
        guest.does(begins);
        said.try_iter().for_each(drop);
        guest.does("start 4");
        until_it_makes(&file);
        std::thread::sleep(std::time::Duration::from_millis(100));
        drop(file);
        guest.does("join");
        assert_eq!(contexts(&said), asks, "{begins}");
        guest.does("create");
        assert_eq!(contexts(&said), [0, 1], "another one");
        guest.finish().silently();
    }
}

#[test]
fn the_next_daemon_is_told_of_the_contexts_and_of_a_call_under_way() {
    let mut dealer = Dealer::start(&Gpu::new(""));
    let (mut guest, file) = making(&dealer);
    dealer.leave();
    let said = heard(&dealer);
    dealer.come_back();
    let first = said.recv().expect("it asks again");
    assert_eq!(first, Request::Open { device_index: 0 });
    let more = said.recv().expect("it asks again");
    assert_eq!(more, Request::OpenAgain { device_index: 0 });
    drop(file);
    assert_eq!(guest.line(), "retain 0");
    dealer.hears_some(|said| matches!(said, Request::OpenDone { .. }).then_some(()));
    guest.finish().silently();
}

#[test]
fn a_program_without_contexts_tells_the_next_daemon_of_none() {
    let mut dealer = Dealer::start(&Gpu::new(""));
    let mut guest = dealer.client("contexts");
    guest.does("init");
    guest.does("destroy 1");
    dealer.leave();
    let said = heard(&dealer);
    dealer.come_back();
    dealer.hears_some(|said| matches!(said, Request::Adopted { .. }).then_some(()));
    guest.does("create");
    let first = said.recv().expect("it asks");
    assert!(matches!(first, Request::OpenMore { .. }), "{first:?}");
    guest.finish().silently();
}

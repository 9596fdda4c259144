//! A `run` that waits in the queue, and a daemon that leaves meanwhile.

use std::io::{Read, Write};
use std::process::Output;
use std::thread;

use gpushare_protocol::wire::{ControlReply, Decoder, ErrorCode, Hello, WireError, encode};
use gpushare_tests::{Home, MIB, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[test]
fn a_run_that_queues_is_registered_again_with_the_next_daemon() {
    let home = Home::new("mem=16GiB");
    let first = home.guest("first", &["--mem-limit", "10GiB"]);
    let mut second = home.queued("second", &["--mem-limit", "10GiB"]);
    let pid = home.daemons()[0];
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
    until("the next daemon has both", || {
        let told = home.gpushare(&["ps", "--json"]).stdout;
        let told = String::from_utf8_lossy(&told);
        told.contains("\"first\"") && told.contains("\"second\"")
    });
    home.until("second", |row| {
        let why = row["queued"]["why"].as_str();
        why.is_some_and(|why| why.contains("until its request fits"))
    });
    first.finish().silently();
    assert_eq!(second.ask("init"), "init 0");
    let ended = second.finish();
    assert!(ended.status.success(), "{ended:?}");
    assert!(ended.stderr.contains("registered again"), "{ended:?}");
}

/// A `run` with these flags, whose daemon gives these answers, hangs up, and greets no other
/// connection.
fn answered(flags: &[&str], replies: Vec<ControlReply>) -> Output {
    let home = Home::new("");
    let listener = home.listener();
    let daemon = thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("the command connects");
        let (mut decoder, mut asked) = (Decoder::default(), 0);
        while asked < 2 {
            let mut bytes = [0; 4096];
            let read = socket.read(&mut bytes).expect("the command asks");
            assert!(read > 0, "the command hung up");
            decoder.push(&bytes[..read]);
            while let Some((id, _)) = decoder.next_frame().expect("frames") {
                asked += 1;
                let mut frames = Vec::new();
                if id == 0 {
                    encode(0, &Hello::of_this_build(7), &mut frames).expect("a hello");
                }
                for reply in replies.iter().filter(|_| id > 0) {
                    // The end of a tenant answers nothing.
                    let of = match reply {
                        ControlReply::End { .. } => 0,
                        _ => id,
                    };
                    encode(of, reply, &mut frames).expect("a reply");
                }
                socket.write_all(&frames).expect("it is read");
            }
        }
        listener
    });
    let output = home.run("one", flags).args(["echo", "ran"]).output();
    daemon.join().expect("it served");
    until("none that it started is left", || home.daemons().is_empty());
    output.expect("gpushare starts")
}

/// Its words, where it ended without a program.
fn told(output: &Output) -> String {
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{told}");
    assert!(output.stdout.is_empty(), "no program ran");
    told
}

#[test]
fn a_run_that_is_refused_while_it_queues_ends() {
    let why = "waits".to_owned();
    let refusal = WireError::new(ErrorCode::BadLimits, "device 0 is gone");
    let replies = vec![ControlReply::Queued { why }, ControlReply::Error(refusal)];
    let told = told(&answered(&[], replies));
    assert!(told.contains("device 0 is gone"), "{told}");
    assert!(!told.contains("XDG_RUNTIME_DIR"), "{told}");
}

/// As in a batch job whose user has another job on the node, with other GPUs.
#[test]
fn a_run_whose_gpu_its_own_daemon_does_not_see_is_told_what_to_do() {
    let text = "this node has no device GPU-1";
    let refusal = ControlReply::Error(WireError::new(ErrorCode::NotFound, text));
    let said = told(&answered(&[], vec![refusal]));
    let process = format!("process {}", std::process::id());
    for words in [text, &process, "XDG_RUNTIME_DIR"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let lost = WireError::new(ErrorCode::NotFound, "device GPU-1 is lost");
    let said = told(&answered(&[], vec![ControlReply::Error(lost)]));
    assert!(!said.contains("XDG_RUNTIME_DIR"), "{said}");
}

#[test]
fn a_run_that_is_ended_while_it_queues_does_not_start() {
    let why = "waits".to_owned();
    let end = ControlReply::End {
        signal: 15,
        why: "ended by uid 0".to_owned(),
    };
    let told = told(&answered(&[], vec![ControlReply::Queued { why }, end]));
    assert!(told.contains("was not started: ended by uid 0"), "{told}");
}

#[test]
fn a_run_whose_daemon_leaves_without_an_answer_ends() {
    let told = told(&answered(&[], Vec::new()));
    assert!(told.contains("lost the daemon"), "{told}");
}

#[test]
fn a_start_timeout_bounds_the_wait_for_the_next_daemon() {
    let why = "waits".to_owned();
    let flags = ["--start-timeout", "5s"];
    let told = told(&answered(&flags, vec![ControlReply::Queued { why }]));
    let over = "--start-timeout of 5s is over, and tenant one waits";
    assert!(told.contains("registered again"), "{told}");
    assert!(told.contains(over), "{told}");
}

/// What a `run` with this limit says that is not started at once.
fn waits(home: &Home, limit: &str) -> String {
    let flags = ["--mem-limit", limit, "--start-timeout", "1s"];
    let ended = home.run("late", &flags).arg("true").output();
    let ended = ended.expect("gpushare starts");
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    String::from_utf8_lossy(&ended.stderr).into_owned()
}

#[test]
fn a_queued_run_is_told_of_the_devices_without_room_alone() {
    let home = Home::new("count=2,mem=4GiB");
    let limits = ["--mem-limit", "0=1GiB", "--mem-limit", "1=2GiB"];
    let first = home.guest("first", &limits);
    // A context that was not measured yet counts as 512 MiB.
    until("its context is measured", || {
        home.ps().iter().any(|row| row["overhead"] == 64 * MIB)
    });
    for (limit, devices) in [("2500MiB", 1), ("3500MiB", 2)] {
        let said = waits(&home, limit);
        let waits = said.lines().find(|line| line.contains("waits until"));
        let found = waits.map(|line| line.matches(" are promised").count());
        assert_eq!(found, Some(devices), "{limit}: {said}");
    }
    first.finish().silently();
}

#[test]
fn a_queued_run_is_told_of_memory_that_no_lower_request_frees() {
    let home = Home::new("mem=16GiB");
    let mut first = home.guest("first", &["--mem-limit", "15GiB"]);
    assert_eq!(first.ask(&format!("alloc {}", 14_u64 << 30)), "alloc 0");
    let (above, whose) = ("above requests", "not that of first");
    let said = waits(&home, "12GiB");
    assert!(!said.contains(above) && !said.contains(whose), "{said}");
    let set = home.gpushare(&["set", "first", "--mem-request", "1GiB"]);
    assert!(set.status.success(), "{set:?}");
    let said = waits(&home, "12GiB");
    assert!(said.contains(above) && said.contains(whose), "{said}");
    first.finish().silently();
}

#[test]
fn a_stopped_daemon_is_named_by_its_process_and_one_that_died_is_not() {
    let home = Home::new("mem=16GiB");
    let mut first = home.guest("first", &["--mem-limit", "1GiB"]);
    let pid = home.daemons()[0];
    let signal = |which| kill(Pid::from_raw(pid.cast_signed()), which).unwrap();
    let says = |command: &[&str]| {
        let said = home.gpushare(command);
        assert!(!said.status.success(), "{said:?}");
        let texts = [said.stdout, said.stderr].concat();
        String::from_utf8_lossy(&texts).replace('\n', " ")
    };
    signal(Signal::SIGSTOP);
    let process = format!("process {pid} (which is stopped)");
    for command in [&["ps"][..], &["why", "first"]] {
        let said = says(command);
        assert!(said.contains(&process), "{said}");
        assert!(!said.contains("takes them over"), "{said}");
    }
    signal(Signal::SIGCONT);
    assert_eq!(first.ask("alloc 1024"), "alloc 0");
    first.hold();
    signal(Signal::SIGKILL);
    home.until_no_daemon();
    let said = says(&["ps"]);
    assert!(said.contains("takes them over"), "{said}");
    assert!(!said.contains("process"), "{said}");
    first.go_on();
    first.finish().silently();
}

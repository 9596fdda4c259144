//! SIGHUP, hundreds of times, with valid and invalid files, while programs allocate.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use gpushare_tests::machine::{ALICE, Machine, OWN_ETC, ROOT};
use gpushare_tests::{Daemon, GIB, Gpu, MIB, artefacts, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The number of signals that the daemon gets.
const STORM: usize = 600;

fn file(limit: u64) -> String {
    format!("[defaults]\nGPUSHARE_MEM_LIMIT = \"{limit}GiB\"\n")
}

/// The current default limit of a tenant.
fn given(daemon: &Daemon, name: &str) -> u64 {
    let _tenant = daemon.tenant(name, &[]);
    daemon.row(name).limit / GIB
}

#[test]
fn a_storm_of_reloads_loses_no_answer_and_the_last_good_file_holds() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("config.toml");
    let write = |text: &str| {
        // The file is replaced atomically, like an editor does it.
        let new = folder.path().join("new");
        fs::write(&new, text).expect("the folder is writable");
        fs::rename(new, &path).expect("the same file system");
    };
    write(&file(1));
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::with(&gpu, &["--config", &path.to_string_lossy()]);
    let pid = Pid::from_raw(daemon.pid().cast_signed());
    let hang_up = || kill(pid, Signal::SIGHUP).expect("the daemon runs");

    let tenant = daemon.tenant("busy", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
    let mut guests: Vec<_> = (0..2).map(|_| tenant.client("quota", &[])).collect();
    for guest in &mut guests {
        assert_eq!(guest.ask("init"), "init 0");
    }
    let over = AtomicBool::new(false);
    let rounds: usize = thread::scope(|scope| {
        let over = &over;
        let busy = move |guest: &mut gpushare_tests::Guest| {
            let mut rounds = 0;
            while !over.load(Ordering::Relaxed) {
                // More than a step, so that the process must ask the daemon.
                assert_eq!(guest.ask(&format!("alloc {}", 256 * MIB)), "alloc 0");
                assert_eq!(guest.ask("free 1"), "free 0");
                rounds += 1;
            }
            rounds
        };
        let busy: Vec<_> = guests
            .iter_mut()
            .map(|guest| scope.spawn(move || busy(guest)))
            .collect();
        for at in 0..STORM {
            match at % 4 {
                0 => write("[defaults\n"),
                1 => write(&file(2)),
                2 => write("[maxima]\nGPUSHARE_MEM_LIMIT = \"much\"\n"),
                _ => fs::remove_file(&path).expect("it is there"),
            }
            hang_up();
        }
        over.store(true, Ordering::Relaxed);
        let rounds = busy.into_iter().map(|guest| guest.join().expect("answers"));
        rounds.sum()
    });
    println!("{rounds} rounds beside {STORM} signals");

    write(&file(3));
    hang_up();
    let mut tried = 0;
    until("the last good file holds", || {
        tried += 1;
        given(&daemon, &format!("after-{tried}")) == 3
    });
    for (at, bad) in ["[defaults\n", "capacity = 3\n", "[maxima]\nx = \"1\"\n"]
        .iter()
        .enumerate()
    {
        write(bad);
        hang_up();
        assert_eq!(given(&daemon, &format!("bad-{at}")), 3, "{bad:?}");
    }
    assert_eq!(daemon.row("busy").limit, 4 * GIB);
    for guest in &mut guests {
        assert_eq!(guest.ask("check"), "check 0");
    }
}

#[test]
fn a_reload_without_a_file_ends_nothing() {
    let daemon = Daemon::start(&Gpu::new("mem=16GiB"));
    let limit = given(&daemon, "before");
    let pid = Pid::from_raw(daemon.pid().cast_signed());
    kill(pid, Signal::SIGHUP).expect("the daemon runs");
    for name in ["after", "later"] {
        assert_eq!(given(&daemon, name), limit);
    }
}

#[test]
fn a_private_daemon_reads_no_settings_of_the_machine() {
    let test = "a_private_daemon_reads_no_settings_of_the_machine";
    let Some(machine) = Machine::bare(test) else {
        return;
    };
    machine.sh(ROOT, OWN_ETC);
    // Wrong for root, and not to be read by others.
    machine.sh(
        ROOT,
        "mkdir /etc/gpushare && echo '[defaults' >/etc/gpushare/config.toml && \
         chmod 600 /etc/gpushare/config.toml",
    );
    let gpu = format!("soft:{}", machine.gpu().spec());
    for user in [ROOT, ALICE] {
        let run = ["run", "--daemon", "on", "--gpu", &gpu, "--", "echo", "ran"];
        let output = machine.run(user, &run);
        assert_eq!(output.stdout, b"ran\n", "{output:?}");
    }
}

#[test]
fn a_default_file_that_comes_later_is_read_and_a_wrong_one_is_not() {
    let test = "a_default_file_that_comes_later_is_read_and_a_wrong_one_is_not";
    let Some(mut machine) = Machine::bare(test) else {
        return;
    };
    machine.sh(ROOT, OWN_ETC);
    machine.start_daemon(&[]);
    let limit = |machine: &Machine, name: &str| {
        let mut guest = machine.guest(ROOT, &["--name", name]);
        assert_eq!(guest.ask("init"), "init 0");
        let row = machine.row(ROOT, name).expect("it is a tenant");
        guest.finish().silently();
        row["limit"].as_u64().expect("a number") / GIB
    };
    machine.signal_daemon(Signal::SIGHUP);
    assert_eq!(limit(&machine, "without"), 16);
    machine.sh(
        ROOT,
        "mkdir /etc/gpushare && printf '[defaults]\nGPUSHARE_MEM_LIMIT = \"3GiB\"\n' >/etc/gpushare/config.toml",
    );
    machine.signal_daemon(Signal::SIGHUP);
    let mut tried = 0;
    until("the file holds", || {
        tried += 1;
        limit(&machine, &format!("with-{tried}")) == 3
    });
    for (name, line) in [
        ("wrong", "echo '[defaults' >/etc/gpushare/config.toml"),
        ("gone", "rm -r /etc/gpushare"),
    ] {
        machine.sh(ROOT, line);
        machine.signal_daemon(Signal::SIGHUP);
        assert_eq!(limit(&machine, name), 3, "{line}");
    }
}

/// Root's shell reaches such a file where the daemon, whose unit leaves root two capabilities, does
/// not.
#[test]
fn a_default_file_that_cannot_be_reached_stops_the_start() {
    let test = "a_default_file_that_cannot_be_reached_stops_the_start";
    let Some(mut machine) = Machine::bare(test) else {
        return;
    };
    machine.sh(ROOT, OWN_ETC);
    let unit = |machine: &Machine, flags: &[&str]| {
        let mut daemon = machine.as_user(ROOT, "setpriv");
        let gpushared = artefacts::gpushared();
        daemon
            .args(["--bounding-set", "-all,+kill,+sys_resource"])
            .arg(gpushared);
        let done = daemon.args(flags).output().expect("setpriv is there");
        let said = [done.stdout, done.stderr].concat();
        let said = String::from_utf8(said).expect("text");
        (done.status.code(), said)
    };
    let (code, said) = unit(&machine, &["--check-config"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("there is no /etc/gpushare"), "{said}");
    machine.sh(
        ROOT,
        "mkdir /etc/gpushare && printf '[containers]\nunlimited = \"deny\"\n' >/etc/gpushare/config.toml",
    );
    machine.start_daemon(&[]);
    machine.kill_daemon();
    for (line, why) in [
        (
            "chown 65534 /etc/gpushare && chmod 700 /etc/gpushare",
            "Permission denied",
        ),
        (
            "rm -r /etc/gpushare && ln -s /nowhere/gpushare /etc/gpushare",
            "/nowhere/gpushare): No such file",
        ),
        (
            "rm /etc/gpushare && mkdir /etc/gpushare && \
             ln -s /nowhere/config.toml /etc/gpushare/config.toml",
            "/nowhere/config.toml): No such file",
        ),
    ] {
        machine.sh(ROOT, line);
        for flags in [&["--check-config"][..], &[]] {
            let (code, said) = unit(&machine, flags);
            assert_eq!(code, Some(78), "{line}: {said}");
            assert!(said.contains(why), "{line}: {said}");
        }
        // Hooks refuse containers without limits until a daemon has read the file.
        machine.sh(ROOT, "test -e /run/gpushare/mandatory");
    }
}

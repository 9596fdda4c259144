//! Libraries and socket folders that not every user of a container can reach: the create fails, or
//! the program gets no CUDA. None runs without its limit.

use gpushare_tests::clients;
use gpushare_tests::container::{Bundle, Door, Lab, Runtime};
use gpushare_tests::guest::Ended;
use gpushare_tests::machine::ALICE;
use gpushare_tests::process::is_stopped;
use gpushare_tests::{GIB, until};
use nix::sys::signal::Signal;

fn lab(config: &str) -> Option<Lab> {
    let test = std::thread::current();
    Lab::start(test.name().unwrap_or("containers_closed"), config)
}

/// A container with two GiB, whose program is not root and waits for a line before it becomes the
/// quota client.
fn users(id: &str) -> Bundle {
    let client = clients::compile("quota", &[]);
    let line = format!(
        "echo idle; read go; exec setpriv --reuid={ALICE} --regid={ALICE} --clear-groups {}",
        client.display()
    );
    let program = ["sh", "-c", &line].map(str::to_owned).to_vec();
    let limits = [("mem-limit", "2GiB"), ("devices", "0")];
    Bundle {
        program,
        ..Bundle::new(id, Runtime::ByHand, &limits)
    }
}

#[test]
fn a_create_fails_where_not_all_users_could_load_the_library() {
    let Some(lab) = lab("") else { return };
    let back = "rm -f libgpushare.so; mv /var/lib/lab/kept libgpushare.so";
    for (spoil, mend, word) in [
        (
            "mv libgpushare.so /var/lib/lab/kept",
            back,
            "library/libgpushare.so",
        ),
        (
            "mv libgpushare.so /var/lib/lab/kept; ln -s /var/lib/lab/kept libgpushare.so",
            back,
            "lab/libgpushare.so",
        ),
        (
            "mv libgpushare.so /var/lib/lab/kept; mkdir libgpushare.so",
            "rmdir libgpushare.so; mv /var/lib/lab/kept libgpushare.so",
            "library/libgpushare.so",
        ),
        (
            "chmod 666 libgpushare.so",
            "chmod 755 libgpushare.so",
            "lets others write",
        ),
        ("chmod 750 .", "chmod 755 .", "library has mode 0750"),
        (
            "chmod 640 libgpushare.so",
            "chmod 755 libgpushare.so",
            "libgpushare.so has mode 0640",
        ),
        (
            "mount --bind . . && mount -o remount,bind,noexec /var/lib/lab/library",
            "cd / && umount /var/lib/lab/library",
            "noexec",
        ),
    ] {
        lab.sh(&format!("cd /var/lib/lab/library; {spoil}"));
        let ended = lab.ends(&users("one"));
        let refused = !ended.status.success() && ended.stdout.is_empty();
        assert!(refused, "{spoil}: {ended:?}");
        for word in [word, "libgpushare.so"] {
            assert!(ended.stderr.contains(word), "{spoil}: {ended:?}");
        }
        lab.sh(&format!("cd /var/lib/lab/library; {mend}"));
    }
    let mut guest = lab.run(&users("one"));
    assert_eq!(guest.line(), "idle");
    guest.send("go");
    assert_eq!(guest.started().ask("total"), format!("total {} 0", 2 * GIB));
}

#[test]
fn no_umask_of_the_daemon_takes_a_containers_limit_away() {
    let config = "[containers]\ncdi = \"/run/cdi/gpushare.json\"\nlibrary = \"/var/lib/lab/library\"\n\
        [classes.two]\ndevices = [\"0\"]\n[classes.two.limits]\nGPUSHARE_MEM_LIMIT = \"2GiB\"\n";
    let Some(mut lab) = lab(config) else { return };
    lab.kill_daemon();
    lab.sh("rm -rf /run/gpushare");
    lab.restart_daemon_by(&["sh", "-c", "umask 027; exec \"$@\"", "sh"]);
    for (id, door) in [("one", Door::Hook), (&*"ab".repeat(32), Door::Cdi("two"))] {
        let mut bundle = users(id);
        bundle.door = door;
        if door != Door::Hook {
            bundle.annotations.clear();
        }
        let mut guest = lab.run(&bundle);
        assert_eq!(guest.line(), "idle");
        guest.send("go");
        let mut guest = guest.started();
        assert_eq!(guest.ask("total"), format!("total {} 0", 2 * GIB), "{id}");
    }
    let mode = |folder: &str| lab.sh(&format!("stat -c %a /run/gpushare/{folder}"));
    assert_eq!(
        ["", "sockets", "registered"].map(mode),
        ["755", "755", "700"]
    );
}

#[test]
fn a_program_that_cannot_enter_its_socket_folder_gets_no_cuda() {
    let Some(lab) = lab("") else { return };
    let mut guest = lab.run(&users("one"));
    assert_eq!(guest.line(), "idle");
    lab.sh("chmod 750 /run/gpushare/sockets/one");
    guest.send("go");
    guest.send("init");
    assert_ne!(guest.line(), "init 0");
}

/// A container whose first program mounts a tmpfs as systemd does, if `mounts` says so, and becomes
/// the quota client.
fn boots(id: &str, mounts: &str) -> Bundle {
    let client = clients::compile("quota", &[]);
    let line = format!("{mounts}exec {}", client.display());
    Bundle {
        program: ["sh", "-c", &line].map(str::to_owned).to_vec(),
        ..users(id)
    }
}

#[test]
fn a_container_whose_socket_folder_is_covered_has_no_cuda() {
    let Some(lab) = lab("") else { return };
    let mut guest = lab.run(&boots("one", "mount -t tmpfs run /run && "));
    let answered = guest.ask("init");
    let ended = guest.finish();
    assert!(
        ended.stderr.contains("/run/gpushare is covered"),
        "{ended:?}"
    );
    assert_eq!(answered, "init 1");
    // A tmpfs elsewhere covers nothing.
    let elsewhere = "mkdir /run/other && mount -t tmpfs run /run/other && ";
    let mut guest = lab.run(&boots("two", elsewhere)).started();
    assert_eq!(guest.ask("total"), format!("total {} 0", 2 * GIB));
    guest.finish().silently();
}

/// A container whose program waits for a line before it becomes the quota client: its first line
/// then, asked whether it has CUDA.
fn starts_later(lab: &Lab, meanwhile: &str) -> (String, Ended) {
    let mut guest = lab.run(&users("one"));
    assert_eq!(guest.line(), "idle");
    // The daemon makes anew what it misses, and could do so while it is removed.
    lab.signal_daemon(Signal::SIGSTOP);
    let daemon = lab.machine().daemon_pid();
    until("the daemon stands still", || is_stopped(daemon));
    lab.sh(meanwhile);
    lab.signal_daemon(Signal::SIGCONT);
    guest.send("go");
    (guest.ask("init"), guest.finish())
}

#[test]
fn a_container_whose_socket_folder_is_removed_on_the_host_has_no_cuda() {
    let Some(mut lab) = lab("") else { return };
    lab.kill_daemon();
    for removed in ["rm -rf /run/gpushare", "rm -r /run/gpushare/sockets/*"] {
        lab.restart_daemon();
        let (answered, ended) = starts_later(&lab, removed);
        assert_eq!(answered, "init 1", "{removed}");
        assert!(ended.stderr.contains("removed on the host"), "{ended:?}");
    }
}

#[test]
fn a_container_whose_socket_folder_is_emptied_on_the_host_has_its_limit() {
    let Some(lab) = lab("") else { return };
    let mut guest = lab.run(&users("one"));
    assert_eq!(guest.line(), "idle");
    lab.sh("rm /run/gpushare/sockets/one/*");
    guest.send("go");
    assert_eq!(guest.started().ask("total"), format!("total {} 0", 2 * GIB));
}

#[test]
fn a_container_that_is_forgotten_while_it_runs_has_no_cuda_any_more() {
    // Whatever holds while no daemon runs.
    let Some(mut lab) = lab("[containers]\non_daemon_loss = \"allow\"\n") else {
        return;
    };
    let mut guest = lab.run(&users("one"));
    assert_eq!(guest.line(), "idle");
    // It has a GPU too that the next daemon does not find.
    lab.kill_daemon();
    let lost = "9,".repeat(15) + "9";
    lab.sh(&format!(
        r#"sed -i 's/"devices":\[/&[{lost}],/' /run/gpushare/registered/one.json"#
    ));
    lab.restart_daemon();
    lab.sh("rm /run/gpushare/registered/one.json");
    let aside = "test ! -e /run/gpushare/sockets/.one/container || echo aside";
    until("it is forgotten", || lab.sh(aside) == "aside");
    guest.send("go");
    assert_eq!(guest.ask("init"), "init 1");
    drop(guest.finish());
}

#[test]
fn a_container_is_not_begun_where_the_daemon_has_no_room_for_its_files() {
    let Some(mut lab) = lab("") else { return };
    lab.kill_daemon();
    lab.sh("rm -rf /run/gpushare && mkdir /run/gpushare && mount -t tmpfs -o size=256k,mode=755 t /run/gpushare");
    lab.restart_daemon();
    lab.sh("cat /dev/zero > /run/gpushare/fill 2>/dev/null; true");
    let ended = lab.ends(&users("one"));
    assert!(
        !ended.status.success() && ended.stdout.is_empty(),
        "{ended:?}"
    );
    assert!(ended.stderr.contains("no complete folder"), "{ended:?}");
    lab.sh("rm /run/gpushare/fill");
    let mut guest = lab.run(&users("two"));
    assert_eq!(guest.line(), "idle");
    guest.send("go");
    assert_eq!(guest.started().ask("total"), format!("total {} 0", 2 * GIB));
}

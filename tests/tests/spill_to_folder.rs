//! `gpushare suspend NAME --to FOLDER`: a tenant's memory in a file of the command's folder. The
//! real daemon and the real library.

use std::fs::{self, OpenOptions};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;

use gpushare_client::Talk;
use gpushare_protocol::wire::Control;
use gpushare_tests::runnable::not_runnable_here;
use gpushare_tests::{Guest, Home, clients, schema, until};
use nix::fcntl::OFlag;
use serde_json::Value;

use crate::spill::{DEVICE, LIMIT, Mount, SIZE, SWAP, Scene, bare_node, without_folder};

/// As `gpushare suspend NAME --to FOLDER`.
pub(crate) fn suspend_to(scene: &Scene, name: &str) -> Result<(), String> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let write = options.custom_flags(OFlag::O_TMPFILE.bits());
    let write = write.open(scene.folder.path()).expect("a file");
    let read = fs::File::open(format!("/proc/self/fd/{}", write.as_raw_fd())).expect("it");
    let control = scene.daemon.control();
    let folder = control.parent().expect("its folder");
    let mut talk = Talk::connect(folder).expect("a daemon");
    let tenant = name.to_owned();
    let files = [write.as_fd(), read.as_fd()];
    let id = talk.ask_with(&Control::SuspendTo { tenant }, &files);
    let reply = talk.reply(id.expect("it is sent"));
    reply.map(drop).map_err(|error| error.message)
}

#[test]
fn suspended_to_a_folder_a_tenant_leaves_the_host_to_others() {
    let mut scene = without_folder();
    let (_one, mut first) = scene.filled("one", 3);
    assert_eq!(suspend_to(&scene, "one"), Ok(()));
    assert!(scene.stored() >= SIZE);
    // The host has room for one tenant, and another one leaves now.
    let (_two, mut second) = scene.filled("two", 4);
    scene.daemon.suspend("two");
    scene.daemon.restart();
    assert_eq!(first.ask("check 3"), "check 0");
    // With a host for one tenant and no folder, the second comes back once the first has freed.
    assert_eq!(first.ask("free"), "free 0");
    assert_eq!(second.ask("check 4"), "check 0");
    until("its file is open still", || scene.files().is_empty());
}

/// The driver lets go of the memory when it is asked again.
#[test]
fn memory_that_stays_pinned_once_is_suspended_to_the_folder_at_last() {
    let scene = without_folder();
    let tenant = scene.daemon.tenant("one", &SWAP);
    let fails = [("SOFTGPU_FAIL", "cuMemHostUnregister:1:CUDA_ERROR_UNKNOWN")];
    let mut first = tenant.client("swapped", &fails);
    for (line, answer) in [
        ("init".to_owned(), "init 0"),
        (format!("alloc {SIZE}"), "alloc 0"),
        ("fill 3".to_owned(), "fill 0"),
    ] {
        assert_eq!(first.ask(&line), answer);
    }
    assert_eq!(suspend_to(&scene, "one"), Ok(()));
    assert!(scene.stored() >= SIZE);
    assert_eq!(first.ask("check 3"), "check 0");
}

#[test]
fn a_full_folder_of_a_command_is_its_error_and_the_memory_stays() {
    let mut scene = without_folder();
    let Some(mounted) = Mount::small(scene.folder.path()) else {
        let test = "a_full_folder_of_a_command_is_its_error_and_the_memory_stays";
        return not_runnable_here(test, "no file system can be mounted");
    };
    let (_one, mut first) = scene.filled("one", 3);
    let why = suspend_to(&scene, "one").expect_err("there is no room");
    assert!(
        why.contains("No space") && why.contains("stays on the host"),
        "{why}"
    );
    assert_eq!(first.ask("check 3"), "check 0");
    assert!(scene.daemon.events("memory-lost").is_empty());
    scene.daemon.kill();
    drop((first, scene));
    drop(mounted);
}

#[test]
fn a_file_that_the_daemon_does_not_take_is_refused_with_the_file_systems() {
    let scene = without_folder();
    let (_one, mut first) = scene.filled("one", 3);
    let named = scene.folder.path().join("named");
    let write = fs::File::create(&named).expect("a file");
    let read = fs::File::open(&named).expect("it");
    let control = scene.daemon.control();
    let mut talk = Talk::connect(control.parent().expect("its folder")).expect("a daemon");
    let tenant = "one".to_owned();
    let files = [write.as_fd(), read.as_fd()];
    let id = talk.ask_with(&Control::SuspendTo { tenant }, &files);
    let refused = talk.reply(id.expect("it is sent")).unwrap_err().message;
    for word in ["xfs", "[swap] spill", "FUSE"] {
        assert!(refused.contains(word), "{refused}");
    }
    assert_eq!(suspend_to(&scene, "one"), Ok(()));
    assert_eq!(first.ask("check 3"), "check 0");
}

#[test]
fn a_command_suspends_to_a_folder_where_its_user_may_write() {
    let home = Home::with_config(DEVICE, &bare_node());
    let flags = ["--on-collision", "swap", "--mem-limit", LIMIT];
    let mut command = home.run("one", &flags);
    command.arg(clients::compile("swapped", &[]));
    let mut guest = Guest::start(command);
    assert_eq!(guest.ask("init"), "init 0");
    assert_eq!(guest.ask(&format!("alloc {SIZE}")), "alloc 0");
    assert_eq!(guest.ask("fill 7"), "fill 0");
    let refused = home.gpushare(&["suspend", "one", "--to", "/proc"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("/proc") && said.contains("xfs"),
        "{said}"
    );
    let missing = home.gpushare(&["suspend", "one", "--to", "/no/such/folder"]);
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(
        !missing.status.success() && !said.contains("xfs"),
        "another reason: {said}"
    );
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_string_lossy();
    let to = ["suspend", "one", "--to", &path, "--json"];
    for (order, is_there) in [
        (&to[..], ("out", true)),
        (&["resume", "one", "--json"], ("in", false)),
    ] {
        let done = home.gpushare(order);
        assert!(done.status.success(), "{done:?}");
        let rows: Value = serde_json::from_slice(&done.stdout).expect("a list");
        schema::check("ps.json", &rows[0]);
        let place = &rows[0]["residency"];
        let told = (&place["place"], &place["suspended"]);
        assert_eq!(told, (&is_there.0.into(), &is_there.1.into()), "{order:?}");
        if order == to {
            // It would stay in the first file.
            let again = home.gpushare(&to[..4]);
            let said = String::from_utf8_lossy(&again.stderr).into_owned();
            assert!(!again.status.success() && said.contains("resume"), "{said}");
        }
    }
    assert_eq!(guest.ask("check 7"), "check 0");
    assert!(guest.finish().silently().is_empty());
}

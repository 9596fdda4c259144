//! The machine's daemon in the sandbox of its unit, where `/run` is read-only but for its folder.

use std::io::{BufRead, BufReader, Read as _};
use std::process::Stdio;

use gpushare_tests::artefacts;
use gpushare_tests::machine::{Machine, ROOT};

/// As systemd does for `RuntimeDirectory=gpushare` and `ProtectSystem=strict`.
const SANDBOX: &str = "mkdir -p /run/gpushare; mount --bind /run/gpushare /run/gpushare; \
                       mount -o remount,bind,ro /run; exec \"$@\"";

/// The mount goes with the folder, and only systemd makes another one.
#[test]
fn a_daemon_whose_folder_was_removed_ends_where_it_cannot_make_it() {
    let test = "a_daemon_whose_folder_was_removed_ends_where_it_cannot_make_it";
    let Some(machine) = Machine::bare(test) else {
        return;
    };
    for removes in [
        "rm -rf /run/gpushare",
        "rm -rf /run/gpushare && mkdir /run/gpushare",
    ] {
        let mut daemon = machine.as_user(ROOT, "unshare");
        let daemon = daemon
            .args([
                "--mount",
                "--propagation",
                "slave",
                "sh",
                "-ec",
                SANDBOX,
                "sh",
            ])
            .arg(artefacts::gpushared())
            .stderr(Stdio::piped());
        let mut daemon = daemon.spawn().expect("unshare is in util-linux");
        let mut log = BufReader::new(daemon.stderr.take().expect("piped"));
        let mut said = String::new();
        while !said.contains("serving") {
            let read = log.read_line(&mut said).expect("text");
            assert_ne!(read, 0, "{said}");
        }
        machine.sh(ROOT, removes);
        log.read_to_string(&mut said).expect("text");
        let status = daemon.wait().expect("a child can be waited for");
        assert_eq!(status.code(), Some(1), "{said}");
        let why = "/run/gpushare was removed, and this daemon may not make it anew";
        assert!(said.contains(why), "{said}");
        // As systemd starts it again.
        machine.sh(ROOT, "rm -rf /run/gpushare");
    }
}

//! `/proc` mounted with `hidepid`, as on hardened machines, and root's daemon with the two
//! capabilities that its unit leaves it: it is shown others' processes only in the mount's group.

use gpushare_tests::artefacts;
use gpushare_tests::machine::{ALICE, Machine, ROOT};
use std::process::Stdio;

/// A group without a name.
const GROUP: &str = "4242";

#[test]
fn a_daemon_that_proc_shows_no_process_says_why_to_each() {
    let test = std::thread::current();
    let test = test.name().unwrap_or("hidden_processes");
    for (groups, sees) in [("0", false), (GROUP, true)] {
        let Some(mut machine) = Machine::bare(test) else {
            return;
        };
        let mount = format!("mount -t proc -o hidepid=2,gid={GROUP} proc /proc");
        machine.sh(ROOT, &mount);
        let mut daemon = machine.as_user(ROOT, "setpriv");
        daemon
            .args(["--bounding-set=-all,+kill,+sys_resource", "--inh-caps=-all"])
            .arg(format!("--groups={groups}"))
            .arg(artefacts::gpushared())
            .stderr(Stdio::piped());
        machine.start_this(daemon);
        for user in [ALICE, ROOT] {
            for arguments in [&["ps"][..], &["run", "--daemon", "on", "--", "true"]] {
                let done = machine.run(user, arguments);
                let said = String::from_utf8_lossy(&done.stderr);
                assert_eq!(done.status.success(), sees, "{user} {arguments:?}: {said}");
                let told = said.contains("hidepid") && said.contains("SupplementaryGroups=");
                assert_eq!(told, !sees, "{user} {arguments:?}: {said}");
            }
        }
    }
}

//! A budget for memory that moves (`[swap] host`) above the limit of the daemon's memory cgroup:
//! the kernel would end the daemon, the only process there, for the first page that does not fit.

use std::fs;

use gpushare_tests::container::{Bundle, Lab, Runtime};
use gpushare_tests::machine::ROOT;
use gpushare_tests::runnable::not_runnable_here;
use gpushare_tests::{MIB, clients};

/// The memory of a container: eight ranges of host memory in advance.
const SIZE: u64 = 512 * MIB;

#[test]
fn a_daemon_in_too_small_a_cgroup_lives_and_its_tenant_runs_on() {
    for (limit, is_narrow) in [(256 * MIB, true), (2048 * MIB, false)] {
        let config = "first_context = \"4MiB\"\n[swap]\nhost = \"1GiB\"\n";
        let test = std::thread::current();
        let test = test.name().unwrap_or("swap_narrow");
        let Some(lab) = Lab::start_with(test, "mem=2GiB,ctx=2MiB", config) else {
            return;
        };
        let Some((group, file)) = lab.memory_group("daemon") else {
            return not_runnable_here(test, "no memory cgroup can be made");
        };
        let daemon = lab.machine().daemon_pid();
        lab.sh(&format!(
            "mkdir -p {0} && echo {limit} >{0}/{file} && echo {daemon} >{0}/cgroup.procs",
            group.display()
        ));
        let bundle = Bundle {
            program: vec![clients::compile("swapped", &[]).display().to_string()],
            ..Bundle::new(
                "one",
                Runtime::ByHand,
                &[("mem-limit", "1GiB"), ("on-collision", "swap")],
            )
        };
        let mut guest = lab.run(&bundle).started();
        let mut ask = |line: &str, answer: &str| assert_eq!(guest.ask(line), answer, "{line}");
        ask(&format!("alloc {SIZE}"), "alloc 0");
        ask("fill 7", "fill 0");
        // To leave it needs all of it on the host.
        let left = lab
            .machine()
            .run(ROOT, &["suspend", "one"])
            .status
            .success();
        assert_eq!(left, !is_narrow);
        ask("check 7", "check 0");
        let told = lab
            .machine()
            .run(ROOT, &["events", "--tenant", "one"])
            .stdout;
        let told = String::from_utf8_lossy(&told).into_owned();
        let failed = "the daemon's memory cgroup /";
        let is_told = told.contains("host-failed") && told.contains(failed);
        assert_eq!(is_told, is_narrow, "{told}");
        let now = lab.machine().daemon_pid();
        assert!(now == daemon && fs::exists(format!("/proc/{daemon}")).is_ok_and(|there| there));
        guest.finish().silently();
        lab.sh(&format!(
            "echo {daemon} >{}/../../cgroup.procs",
            group.display()
        ));
    }
}

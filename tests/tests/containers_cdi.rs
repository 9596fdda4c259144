//! The CDI specification of the node's classes: `gpushare cdi generate` prints it, and the daemon
//! keeps its file whole and current.

use gpushare_tests::GIB;
use gpushare_tests::container::{Bundle, Door, Lab, Runtime};
use gpushare_tests::machine::ROOT;
use gpushare_tests::until;
use nix::sys::signal::Signal;
use serde_json::Value;

const FILE: &str = "/run/cdi/gpushare.json";
const CONFIG: &str = "[containers]\ncdi = \"/run/cdi/gpushare.json\"\nlibrary = \"/var/lib/lab/library\"\n\
    [classes.two]\ndevices = [\"0\"]\n[classes.two.limits]\nGPUSHARE_MEM_LIMIT = \"2GiB\"\n";

fn lab() -> Option<Lab> {
    let test = std::thread::current();
    Lab::start(test.name().unwrap_or("containers_cdi"), CONFIG)
}

/// The specification that the command prints for this configuration, or its complaint.
fn generated(lab: &Lab, config: &str) -> Result<String, String> {
    let done = lab
        .machine()
        .run(ROOT, &["cdi", "generate", "--config", config]);
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned()),
        false => Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
    }
}

fn classes(text: &str) -> Vec<String> {
    let specification: Value = serde_json::from_str(text).expect("whole JSON");
    let devices = specification["devices"].as_array().expect("a list").iter();
    let names = devices.map(|device| device["name"].as_str().expect("a name").to_owned());
    names.collect()
}

#[test]
fn the_printed_specification_is_the_kept_one_and_is_renewed_whole() {
    let Some(lab) = lab() else { return };
    let printed = generated(&lab, "/var/lib/lab/config.toml").expect("it prints");
    let kept = || lab.sh(&format!("cat {FILE} 2>/dev/null || true"));
    assert_eq!(kept(), printed);
    assert_eq!(classes(&printed), ["two"]);
    assert_eq!(lab.sh(&format!("stat -c '%a %u' {FILE}")), "644 0");
    // A lost or broken specification is replaced by a new file: an engine that reads sees either
    // the old or the new one.
    for line in [format!("rm {FILE}"), format!("echo '{{' >{FILE}")] {
        let inode = || lab.sh(&format!("stat -c %i {FILE} 2>/dev/null || true"));
        lab.sh(&format!("ln -f {FILE} /run/cdi/held; {line}"));
        until("it is renewed", || kept() == printed);
        assert_ne!(inode(), lab.sh("stat -c %i /run/cdi/held"), "{line}");
        lab.sh("rm /run/cdi/held");
    }
    assert_eq!(
        lab.sh("ls -A /run/cdi"),
        "gpushare.json",
        "nothing is left beside it"
    );
    let further = "[classes.three]\\ndevices = [\"0\"]\\n";
    lab.sh(&format!("printf '{further}' >>/var/lib/lab/config.toml"));
    lab.signal_daemon(Signal::SIGHUP);
    until("the new class is there", || classes(&kept()).len() == 2);
    assert_eq!(generated(&lab, "/var/lib/lab/config.toml"), Ok(kept()));
}

#[test]
fn a_configuration_that_cannot_be_is_not_printed() {
    let Some(lab) = lab() else { return };
    for (text, words) in [
        ("[classes.\"a/b\"]\\n", &["a/b", "no name of a class"][..]),
        (
            "[classes.a.limits]\\nGPUSHARE_MEM_LIMIT = \"apples\"\\n",
            &["apples", "accepted"],
        ),
        ("[containers]\\ncdi = \"x.json\"\\n", &["absolute"]),
        ("[classes.a]\\nodd = 1\\n", &["odd"]),
    ] {
        lab.sh(&format!("printf '{text}' >/var/lib/lab/odd.toml"));
        let told = generated(&lab, "/var/lib/lab/odd.toml").expect_err(text);
        for word in words {
            assert!(told.contains(word), "{word} in {told}");
        }
    }
    let told = generated(&lab, "/var/lib/lab/none.toml").expect_err("there is no such file");
    assert!(told.contains("none.toml"), "{told}");
}

#[test]
fn a_library_that_not_all_can_load_is_in_no_specification() {
    let Some(lab) = lab() else { return };
    let kept = || lab.sh(&format!("cat {FILE} 2>/dev/null || true"));
    let before = kept();
    assert_eq!(classes(&before), ["two"]);
    lab.sh("chmod 750 /var/lib/lab/library");
    let told = generated(&lab, "/var/lib/lab/config.toml").expect_err("it is closed");
    assert!(
        told.contains("0750") && told.contains("libgpushare.so"),
        "{told}"
    );
    until("no container can ask for it", || kept().is_empty());
    lab.sh("chmod 755 /var/lib/lab/library");
    until("it is back", || kept() == before);
    let library = "/var/lib/lab/library";
    let spoil =
        format!("mount --bind {library} {library} && mount -o remount,bind,noexec {library}");
    lab.sh(&spoil);
    let told = generated(&lab, "/var/lib/lab/config.toml").expect_err("nothing there is executed");
    assert!(told.contains("noexec"), "{told}");
    until("no container can ask for it", || kept().is_empty());
    lab.sh(&format!("umount {library}"));
    until("it is back", || kept() == before);
}

#[test]
fn programs_of_a_class_that_is_gone_go_on_under_the_next_daemon() {
    let Some(mut lab) = lab() else { return };
    let mut bundle = Bundle::new(&"ab".repeat(32), Runtime::ByHand, &[]);
    bundle.door = Door::Cdi("two");
    let mut guest = lab.run(&bundle).started();
    assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0");
    lab.sh("sed -i '/^.classes.two/,$d' /var/lib/lab/config.toml");
    lab.restart_daemon();
    let name = format!("two-{}", "ab".repeat(6));
    until("it is back", || {
        lab.row(&name).is_some_and(|row| row["charged"] == GIB)
    });
    assert_eq!(guest.ask(&format!("alloc {}", GIB / 2)), "alloc 0");
    assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 2", "its limit");
    guest.finish().silently();
}

//! An upgrade while the settings are wrong that the next start would read: the daemon that serves
//! has those of before. So it is where the driver waits for the next boot.

use super::*;

/// A daemon that refuses its settings with this status. It writes down what it was asked.
fn daemon(node: &Node, status: u8) {
    let text = format!(
        "#!/bin/sh\n[ \"$1\" != --check-driver ] || exit 0\n\
         echo \"$*\" >>\"$ROOT/checked\"\n[ {status} = 0 ] && echo accepted || \
         echo 'config.toml: line 3' >&2\nexit {status}\n"
    );
    node.put("usr/bin/gpushared", &text);
}

/// `dpkg -i` of the next version, whose daemon refuses with this status. Returns what it says, and
/// what systemd was asked.
fn upgrade(node: &Node, status: u8) -> (String, String) {
    node.put("asked", "");
    node.script("prerm", &["upgrade", "0.1.0-2"]);
    node.unpack();
    daemon(node, status);
    let said = node.script("postinst", &["configure", OLD]);
    let asked = fs::read_to_string(node.at("asked")).expect("text");
    (said, asked)
}

#[test]
fn an_upgrade_leaves_the_daemon_that_runs_where_settings_are_wrong() {
    let Some(node) = Node::new() else { return };
    node.install();
    node.enable(EXPORTER);
    let restart = format!("try-restart {DAEMON}");
    for (status, is_restarted) in [(78, false), (0, true), (1, true)] {
        let (said, asked) = upgrade(&node, status);
        assert_eq!(asked.contains(&restart), is_restarted, "{asked}");
        assert!(
            asked.contains(&format!("try-restart {EXPORTER}")),
            "{asked}"
        );
        let word = "correct them, then: systemctl restart gpushared";
        assert_eq!(said.contains(word), !is_restarted, "{said}");
        assert_eq!(said.contains("line 3"), status != 0, "{said}");
        assert_eq!(node.state(DAEMON), RUNS);
    }
}

/// The line that `systemctl show` prints of a unit whose daemon has these flags.
fn has_flags(node: &Node, flags: &str) {
    let shown = format!(
        "ExecStart={{ path=/usr/bin/gpushared ; argv[]=/usr/bin/gpushared{flags} ; \
         ignore_errors=no ; pid=7 }}\n"
    );
    node.put("exec-start", &shown);
}

#[test]
fn an_upgrade_checks_the_settings_that_the_unit_names() {
    let Some(node) = Node::new() else { return };
    node.install();
    node.put("srv/a.toml", "");
    let file = node.at("srv/a.toml").display().to_string();
    let named = format!("--config {file} --check-config\n");
    for (flags, checked) in [
        (String::new(), "--check-config\n".to_owned()),
        (format!(" --config {file}"), named.clone()),
        (
            format!(" --config={file} --capacity 8GiB"),
            format!("--config={file} --capacity 8GiB --check-config\n"),
        ),
        (
            " --reserve 1GiB".to_owned(),
            "--reserve 1GiB --check-config\n".to_owned(),
        ),
        // These are not what the daemon will have.
        (
            " --reserve ${ROOM}".to_owned(),
            "--check-config\n".to_owned(),
        ),
    ] {
        has_flags(&node, &flags);
        node.put("checked", "");
        upgrade(&node, 0);
        let asked = fs::read_to_string(node.at("checked")).expect("text");
        assert_eq!(asked, checked);
    }
}

/// A daemon that knows no flag but `--config` and `--check-config`, as clap refuses others.
#[test]
fn an_upgrade_leaves_the_daemon_whose_flags_the_next_one_refuses() {
    let Some(node) = Node::new() else { return };
    node.install();
    let strict = "#!/bin/sh\nfor one; do case $one in --check-config | --config) ;;\n\
                  *) echo \"unexpected $one\" >&2; exit 2 ;; esac; done\n";
    for (flags, is_restarted) in [(" --swop", false), (" --swop $HOW", true), ("", true)] {
        has_flags(&node, flags);
        node.put("asked", "");
        node.unpack();
        node.put("usr/bin/gpushared", strict);
        let said = node.script("postinst", &["configure", OLD]);
        let asked = fs::read_to_string(node.at("asked")).expect("text");
        let restart = format!("try-restart {DAEMON}");
        assert_eq!(asked.contains(&restart), is_restarted, "{flags}: {asked}");
        assert_eq!(said.contains("unexpected --swop"), !is_restarted, "{said}");
    }
}

/// systemd shows a variable unexpanded and a blank unquoted; others are in the unit's own folders.
#[test]
fn an_upgrade_says_nothing_of_settings_that_it_cannot_see() {
    let Some(node) = Node::new() else { return };
    node.install();
    node.put("srv/a.toml", "");
    let srv = node.at("srv").display().to_string();
    for (name, is_restarted) in [
        ("${CONF}", true),
        (&*format!("{srv}/hidden.toml"), true),
        (&*format!("{srv} of ours/a.toml"), true),
        (&*format!("{srv}/a.toml"), false),
    ] {
        has_flags(&node, &format!(" --config {name}"));
        let (said, asked) = upgrade(&node, 78);
        let restart = format!("try-restart {DAEMON}");
        assert_eq!(asked.contains(&restart), is_restarted, "{name}: {asked}");
        assert_eq!(said.is_empty(), is_restarted, "{name}: {said}");
    }
}

/// A drop-in may put a program in front, such as numactl, whose flags are not the daemon's.
#[test]
fn an_upgrade_checks_the_flags_behind_the_daemons_own_name() {
    let Some(node) = Node::new() else { return };
    node.install();
    let name = "/usr/bin/gpushared";
    for (program, checked) in [
        (&*format!("/usr/bin/numactl -N0 {name}"), "--check-config\n"),
        (
            &*format!("/usr/bin/numactl -N0 {name} --reserve 1GiB"),
            "--reserve 1GiB --check-config\n",
        ),
        // What this does nobody knows here.
        ("/usr/local/bin/ours --reserve 1GiB", ""),
    ] {
        let shown = format!("ExecStart={{ path=/x ; argv[]={program} ; pid=7 }}\n");
        node.put("exec-start", &shown);
        node.put("checked", "");
        let (said, asked) = upgrade(&node, 0);
        let found = fs::read_to_string(node.at("checked")).expect("text");
        assert_eq!(found, checked, "{program}");
        assert!(asked.contains(&format!("try-restart {DAEMON}")), "{said}");
    }
}

#[test]
fn wrong_settings_say_nothing_of_a_daemon_that_does_not_run() {
    let Some(node) = Node::new() else { return };
    node.install();
    node.remove(&format!("active/{DAEMON}"));
    let (said, _) = upgrade(&node, 78);
    assert_eq!(said, "");
    assert_eq!(node.state(DAEMON), (true, false));
}

#[test]
fn an_upgrade_leaves_the_daemon_whose_driver_waits_for_the_boot() {
    let Some(node) = Node::new() else { return };
    node.install();
    let own = "Environment=A=b LD_LIBRARY_PATH=/run/nvidia/driver/usr/lib64\n";
    for (status, environment, is_restarted) in [
        (69, "Environment=\n", false),
        // The unit has other libraries than this script.
        (69, own, true),
        (1, "Environment=\n", true),
        (0, "Environment=\n", true),
    ] {
        node.put("asked", "");
        node.put("exec-start", environment);
        node.unpack();
        let daemon = format!(
            "#!/bin/sh\n[ \"$1\" = --check-driver ] || exit 0\necho of 550 >&2; exit {status}\n"
        );
        node.put("usr/bin/gpushared", &daemon);
        let said = node.script("postinst", &["configure", OLD]);
        let asked = fs::read_to_string(node.at("asked")).expect("text");
        let restart = format!("try-restart {DAEMON}");
        assert_eq!(asked.contains(&restart), is_restarted, "{status}: {asked}");
        let word = "it would find no driver: reboot";
        assert_eq!(said.contains(word), !is_restarted, "{said}");
        assert!(is_restarted || said.contains("of 550"), "{said}");
    }
}

/// Its unit starts whatever comes of it, so that `try-restart` succeeds.
#[test]
fn an_upgrade_leaves_the_exporter_whose_flags_the_next_one_refuses() {
    let Some(node) = Node::new() else { return };
    node.install();
    node.enable(EXPORTER);
    let strict = "#!/bin/sh\nfor one; do case $one in --listen=1) ;; --version) exit 0 ;;\n\
                  *) echo \"unexpected $one\" >&2; exit 2 ;; esac; done\n";
    for (flags, is_restarted) in [
        (" --listen=1", true),
        ("", true),
        (" --swop", false),
        (" --swop $HOW", true),
    ] {
        let shown = format!("ExecStart={{ argv[]=/usr/bin/gpushare-exporter{flags} ; pid=7 }}\n");
        node.put("exec-start", &shown);
        node.put("asked", "");
        node.unpack();
        node.put("usr/bin/gpushare-exporter", strict);
        let said = node.script("postinst", &["configure", OLD]);
        let asked = fs::read_to_string(node.at("asked")).expect("text");
        let restart = format!("try-restart {EXPORTER}");
        assert_eq!(asked.contains(&restart), is_restarted, "{flags}: {asked}");
        let named = said.contains("would not accept its flags");
        assert_eq!(named, !is_restarted, "{said}");
        assert_eq!(said.contains("unexpected --swop"), !is_restarted, "{said}");
    }
}

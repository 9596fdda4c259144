//! An upgrade while the settings are wrong that the next start would read: the daemon that serves
//! has those of before.

use super::*;

/// A daemon that refuses its settings with this status. It writes down what it was asked.
fn daemon(node: &Node, status: u8) {
    let text = format!(
        "#!/bin/sh\necho \"$*\" >>\"$ROOT/checked\"\n[ {status} = 0 ] && echo accepted || \
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

#[test]
fn an_upgrade_checks_the_settings_that_the_unit_names() {
    let Some(node) = Node::new() else { return };
    node.install();
    let unit = "ExecStart={ path=/usr/bin/gpushared ; argv[]=/usr/bin/gpushared";
    for (flags, checked) in [
        ("", "--check-config\n"),
        (
            " --config /srv/a.toml",
            "--config /srv/a.toml --check-config\n",
        ),
        (
            " --config=/srv/b.toml --capacity 8GiB",
            "--config /srv/b.toml --check-config\n",
        ),
    ] {
        node.put(
            "exec-start",
            &format!("{unit}{flags} ; ignore_errors=no ; pid=7 }}\n"),
        );
        node.put("checked", "");
        upgrade(&node, 0);
        let asked = fs::read_to_string(node.at("checked")).expect("text");
        assert_eq!(asked, checked);
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

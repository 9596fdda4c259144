//! An upgrade while the daemon is in another state than running or stopped.

use super::*;

/// An upgrade. Returns what it says, and what systemd was asked.
fn upgrade(node: &Node) -> (String, String) {
    node.put("asked", "");
    let said = node.upgrade();
    let asked = fs::read_to_string(node.at("asked")).expect("text");
    (said, asked)
}

/// systemd before 254 answers so; as for a unit that does not start.
#[test]
fn an_upgrade_leaves_a_masked_unit_alone_and_says_nothing() {
    for (enabled, is_masked) in [
        ("masked\n", true),
        ("masked-runtime\n", true),
        ("enabled\n", false),
    ] {
        let Some(node) = Node::new() else { return };
        node.install();
        node.put("enabled", enabled);
        node.put("broken", "");
        let (said, asked) = upgrade(&node);
        assert_eq!(asked.contains("try-restart"), !is_masked, "{asked}");
        assert_eq!(said.contains("did not start"), !is_masked, "{said}");
    }
}

/// NVML may take a minute to start. `try-restart` leaves such a unit, with the program of before.
#[test]
fn a_daemon_that_is_starting_starts_as_the_new_version() {
    for (state, restarts) in [("activating", true), ("inactive", false)] {
        let Some(node) = Node::new() else { return };
        node.install();
        node.remove(&format!("active/{DAEMON}"));
        node.put("exec-start", &format!("ActiveState={state}\n"));
        let (said, asked) = upgrade(&node);
        let restarted = asked.contains(&format!("restart --no-block {DAEMON}"));
        assert_eq!(restarted, restarts, "{asked}");
        assert_eq!(said, "");
    }
}

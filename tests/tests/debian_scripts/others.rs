//! The package beside an installation of the tarball: neither takes what is the other one's.

use super::*;

/// The programs of the tarball, and its unit, which hides the package's.
fn tarball(node: &Node, prefix: &str) {
    let program = format!("{prefix}/bin/gpushared");
    node.put(&program, "#!/bin/sh\n");
    unit_of(node, &node.at(&program).display().to_string());
}

fn unit_of(node: &Node, program: &str) {
    let unit = format!("[Service]\nExecStart={program}\n");
    node.put(&format!("etc/systemd/system/{DAEMON}"), &unit);
}

/// The package's daemon.
fn bin(node: &Node) -> String {
    node.at("usr/bin/gpushared").display().to_string()
}

/// `/usr/local`, where the tarball goes by itself, and another folder.
#[test]
fn a_package_that_goes_leaves_another_installations_daemon_as_it_is() {
    let own = [
        "/usr/bin/gpushared",
        "/usr/bin/env -u A /usr/bin/gpushared -x",
    ];
    for (other, program) in [
        (Some("usr/local"), ""),
        (Some("opt/gpushare"), ""),
        // A copy of the package's own unit, as `systemctl edit --full` makes it. The second one
        // has a program in front of the daemon.
        (None, own[0]),
        (None, own[1]),
    ] {
        let Some(node) = Node::new() else { return };
        node.install();
        match other {
            Some(prefix) => tarball(&node, prefix),
            None => unit_of(&node, &program.replace("/usr/bin/gpushared", &bin(&node))),
        }
        STATE.iter().for_each(|path| node.put(path, ""));
        let stays = other.is_some();
        let runs = || node.has(&format!("active/{DAEMON}"));
        let said = node.delete();
        let named = said.contains(&format!("/{DAEMON} starts a program that is removed now"));
        assert_eq!(named, !stays, "{said}");
        assert_eq!((runs(), node.has("run/gpushare/removed")), (stays, !stays));
        node.purge();
        assert_eq!(
            (runs(), STATE.map(|path| node.has(path))),
            (stays, [stays; 3])
        );
        let link = fs::read_link(node.at(&node.link(DAEMON))).ok();
        let leads = stays.then(|| node.at(&format!("etc/systemd/system/{DAEMON}")));
        assert_eq!(link, leads, "what is enabled stays so");
    }
}

/// dpkg has taken the package's own programs away by then.
#[test]
fn a_purge_leaves_what_the_tarball_put_into_usr_after_the_package() {
    let lib = "usr/lib/gpushare";
    for other in [true, false] {
        let Some(node) = Node::new() else { return };
        node.install();
        node.put("in-use", "");
        node.delete();
        node.remove("in-use");
        if other {
            node.put("usr/bin/gpushared", "#!/bin/sh\n");
            unit_of(&node, &node.at("usr/bin/gpushared").display().to_string());
        }
        let [library, version] =
            ["libgpushare.so", "versions/1/one"].map(|name| format!("{lib}/{name}"));
        let all = [&STATE[..], &[&library, &version]].concat();
        all.iter().for_each(|path| node.put(path, ""));
        if !other {
            node.remove(&library);
        }
        let said = node.script("postrm", &["purge"]);
        for path in &all {
            assert_eq!(node.has(path), other, "{path}");
        }
        assert_eq!(node.has(&node.link(DAEMON)), other);
        assert_eq!(said, "");
    }
}

#[test]
fn a_package_that_is_hidden_by_another_installation_says_so() {
    for (hidden, before) in [(true, ""), (false, ""), (false, "/usr/bin/env ")] {
        let Some(node) = Node::new() else { return };
        match hidden {
            true => tarball(&node, "usr/local"),
            false => unit_of(&node, &format!("{before}{}", bin(&node))),
        }
        let said = node.install();
        let named = said.contains("/usr/local/bin/gpushared and hides");
        assert_eq!(named, hidden, "{said}");
        assert_eq!(said.contains("hides"), hidden, "{said}");
    }
}

/// CRI-O finds the package's file of hooks by itself.
#[test]
fn a_package_on_a_machine_with_crio_says_what_its_file_of_hooks_opens() {
    for has_crio in [true, false] {
        let Some(node) = Node::new() else { return };
        if has_crio {
            node.put("usr/bin/crio", "#!/bin/sh\n");
        }
        let named = |said: &str| said.contains("name a hooks_dir without that file");
        let said = node.install();
        assert_eq!(named(&said), has_crio, "{said}");
        assert!(!named(&node.upgrade()), "once");
    }
}

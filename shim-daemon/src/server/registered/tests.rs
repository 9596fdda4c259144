use std::fs;
use std::path::{Path, PathBuf};

use gpushare_core::Nanos;
use gpushare_protocol::injection::{ALLOW, MARK, PRELOAD};
use gpushare_protocol::wire::ControlReply;

use super::*;
use crate::server::still::{contain, server};

/// A server with these settings, and where its container's folder is.
fn place(text: &str) -> (tempfile::TempDir, Server, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let server = server(&root.path().join("run"), settings(text));
    let folder = root.path().join("run/sockets/one");
    (root, server, folder)
}

fn settings(text: &str) -> Settings {
    crate::config::read(text, Settings::default()).unwrap()
}

/// What the container's hook is told.
fn told(server: &Server) -> Result<String, WireError> {
    let (name, folder) = ("one".to_owned(), String::new());
    match server.with_folder(ControlReply::Created { name, folder }) {
        ControlReply::Created { folder, .. } => Ok(folder),
        ControlReply::Error(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

/// The next look of the second.
fn next_second(server: &mut Server) {
    server.next_tick = Nanos(0);
    server.pass_time().unwrap();
    server.carry_out();
}

#[test]
fn a_container_with_an_incomplete_folder_is_not_begun_until_it_is_whole() {
    for file in [PRELOAD, MARK] {
        let (root, mut server, folder) = place("");
        // A folder where a file has to be.
        fs::create_dir_all(folder.join(file)).unwrap();
        contain(&mut server, root.path(), "one");
        let error = told(&server).unwrap_err();
        assert!(error.can_retry, "{file}: {error}");
        for word in ["one", file] {
            assert!(error.message.contains(word), "{file}: {error}");
        }
        assert!(!folder.join(file).with_extension("new").exists(), "{file}");
        fs::remove_dir(folder.join(file)).unwrap();
        next_second(&mut server);
        assert_eq!(told(&server).unwrap(), folder.to_string_lossy(), "{file}");
        assert!(folder.join(file).is_file());
    }
}

#[test]
fn a_socket_that_could_not_be_made_is_there_for_the_hooks_next_try() {
    let (root, mut server, folder) = place("");
    fs::write(&folder, "").unwrap();
    contain(&mut server, root.path(), "one");
    assert!(told(&server).unwrap_err().message.contains("no socket"));
    fs::remove_file(&folder).unwrap();
    next_second(&mut server);
    assert_eq!(told(&server).unwrap(), folder.to_string_lossy());
    let whole = [PRELOAD, MARK].map(|file| folder.join(file).is_file());
    assert_eq!(whole, [true; 2]);
}

#[test]
fn a_reload_reaches_the_leave_of_containers_that_run() {
    let [allow, deny] =
        ["allow", "deny"].map(|word| format!("[containers]\non_daemon_loss = \"{word}\"\n"));
    let (root, mut server, folder) = place(&allow);
    contain(&mut server, root.path(), "one");
    let is_allowed = || folder.join(ALLOW).exists();
    assert!(is_allowed());
    for (text, allowed) in [(&deny, false), (&allow, true), (&deny, false)] {
        server.follow_settings(&settings(text)).unwrap();
        server.carry_out();
        assert_eq!(is_allowed(), allowed, "{text}");
    }
    // Also where the next daemon has other settings than the one before.
    for (text, allowed) in [(&allow, true), (&deny, false)] {
        drop(server);
        server = self::server(&root.path().join("run"), settings(text));
        assert_eq!(is_allowed(), allowed, "{text}");
    }
}

#[test]
fn what_was_removed_from_a_containers_folder_is_made_anew() {
    let (root, mut server, folder) = place("");
    contain(&mut server, root.path(), "one");
    fs::remove_dir_all(&folder).unwrap();
    next_second(&mut server);
    let whole = [PRELOAD, MARK].map(|file| folder.join(file).is_file());
    assert_eq!(whole, [true; 2]);
    assert_eq!(told(&server).unwrap(), folder.to_string_lossy());
}

#[test]
fn a_container_that_is_not_restored_may_not_start_without_a_daemon() {
    let allow = "[containers]\non_daemon_loss = \"allow\"\n";
    for is_readable in [true, false] {
        let (root, mut server, folder) = place(allow);
        contain(&mut server, root.path(), "one");
        drop(server);
        let file = root.path().join("run/registered/one.json");
        let text = fs::read(&file).unwrap();
        let mut kept: serde_json::Value = serde_json::from_slice(&text).unwrap();
        kept["devices"] = vec![vec![9; 16]].into();
        let text = kept.to_string();
        let end = if is_readable { text.len() } else { 9 };
        fs::write(&file, &text[..end]).unwrap();
        drop(self::server(&root.path().join("run"), settings(allow)));
        let is_there = [MARK, ALLOW].map(|name| folder.join(name).exists());
        assert_eq!(is_there, [true, false], "it can be read: {is_readable}");
        // A daemon that restores it gives the leave back.
        kept["devices"] = vec![vec![7; 16]].into();
        fs::write(&file, kept.to_string()).unwrap();
        drop(self::server(&root.path().join("run"), settings(allow)));
        assert!(folder.join(ALLOW).exists());
    }
}

/// Where a set-aside folder is.
fn aside(folder: &Path) -> PathBuf {
    folder.with_file_name(".one")
}

#[test]
fn a_folder_that_is_set_aside_keeps_its_mark_and_frees_its_name() {
    let (root, mut server, folder) = place("[containers]\non_daemon_loss = \"allow\"\n");
    contain(&mut server, root.path(), "one");
    for _ in 0..2 {
        server.folder.set_aside("one");
        assert!(aside(&folder).join(MARK).exists() && !folder.exists());
        // No daemon is lost: one refuses its programs.
        assert!(!aside(&folder).join(ALLOW).exists());
        assert!(!server.folder.remembers("one"));
        // Another container of that name.
        server.folder.listen("one").unwrap();
        server.node.write_down_all();
        server.carry_out();
        assert!(folder.join(MARK).exists());
    }
    server.folder.forget(".one");
    assert!(!aside(&folder).exists() && folder.exists());
}

#[test]
fn hooks_are_told_whether_limits_are_mandatory_also_after_the_daemon() {
    let [allow, deny] =
        ["allow", "deny"].map(|word| format!("[containers]\nunlimited = \"{word}\"\n"));
    let rule = "[[containers.rules]]\nuser = \"1\"\nunlimited = \"deny\"\n";
    // A rule that allows some has the daemon hear of them.
    let [means, of_user] = ["namespace", "user"]
        .map(|key| format!("[[containers.rules]]\n{key} = \"1\"\nunlimited = \"allow\"\n"));
    let (root, mut server, _) = place("");
    let word = root.path().join("run/mandatory");
    assert!(!word.exists());
    for (text, is_told) in [
        (&*deny, true),
        (&allow, false),
        (rule, true),
        (&of_user, false),
        (&means, true),
        ("", false),
    ] {
        server.follow_settings(&settings(text)).unwrap();
        assert_eq!(word.exists(), is_told, "{text}");
    }
    server.follow_settings(&settings(&deny)).unwrap();
    fs::remove_file(&word).unwrap();
    next_second(&mut server);
    assert!(word.exists(), "it is made anew");
    // With the rules, for the time in which no daemon answers: of each the word that holds.
    let rules = "[[containers.rules]]\nnamespace = \"a\"\nunlimited = \"allow\"\n\
        [[containers.rules]]\nuser = \"1\"\nimage = \"b*\"\n";
    for text in [format!("{deny}{rules}"), deny.clone()] {
        fs::write(&word, "").unwrap();
        server.follow_settings(&settings(&text)).unwrap();
        let told = fs::read(&word).unwrap();
        let labels = |kind: &str, value: &str| [(kind.to_owned(), value.to_owned())];
        let allows = |labels: &[(String, String)]| gpushare_inject::rules::allow(&told, labels);
        assert_eq!(allows(&labels("namespace", "a")), text.contains("rules"));
        assert!(!allows(&labels("namespace", "b")));
        assert!(!allows(
            &[labels("user", "1"), labels("image", "b")].concat()
        ));
    }
    drop(server);
    assert!(word.exists());
    drop(self::server(&root.path().join("run"), settings("")));
    assert!(!word.exists());
}

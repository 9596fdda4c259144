use super::*;

#[test]
fn only_a_machines_daemon_hears_other_users() {
    for (private, mode) in [(true, 0o600), (false, 0o666)] {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path().join("run"), private).unwrap();
        let _control = folder.listen_control().unwrap();
        let found = fs::metadata(folder.control()).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, mode);
    }
}

#[test]
fn nobody_else_can_open_the_lock() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::open(place.path().join("run"), false).unwrap();
    let _lock = folder.lock().unwrap();
    let found = fs::metadata(place.path().join("run/lock")).unwrap();
    assert_eq!(found.mode() & 0o7777, 0o600);
    let second = folder.lock().unwrap_err();
    assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
}

#[test]
fn a_folder_that_is_being_removed_is_not_another_daemons() {
    let place = tempfile::tempdir().unwrap();
    let mut folder = Folder::open(place.path().join("run"), false).unwrap();
    fs::remove_dir_all(place.path().join("run/registered")).unwrap();
    // A daemon that serves makes it anew with its next look.
    let gone = folder.lock().unwrap_err();
    assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    // One that starts gives way to the daemon that removes it.
    let leaving = folder.claim().unwrap_err();
    assert_eq!(leaving.kind(), io::ErrorKind::AddrInUse);
}

/// The lock as an earlier version made it, held by a user that may only read it.
fn held_by_a_reader(path: &Path) -> File {
    fs::write(path, "").unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
    let held = File::open(path).unwrap();
    held.try_lock().unwrap();
    held
}

#[test]
fn a_lock_that_another_user_holds_is_made_anew() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run/lock");
    let folder = Folder::open(place.path().join("run"), false).unwrap();
    let _held = held_by_a_reader(&path);
    let lock = folder.lock().unwrap();
    assert!(folder.is_locked_by(&lock));
    assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn an_earlier_daemon_that_serves_keeps_its_folder() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run/lock");
    let folder = Folder::open(place.path().join("run"), false).unwrap();
    let _held = held_by_a_reader(&path);
    let control = folder.listen_control().unwrap();
    let taken = folder.lock().unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    drop(control);
    folder.lock().unwrap();
}

#[test]
fn a_lock_that_is_a_link_or_a_pipe_is_made_anew() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run/lock");
    let folder = Folder::open(place.path().join("run"), false).unwrap();
    let elsewhere = place.path().join("elsewhere");
    fs::write(&elsewhere, "").unwrap();
    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
    drop(folder.lock().unwrap());
    fs::remove_file(&path).unwrap();
    fs::hard_link(&elsewhere, &path).unwrap();
    drop(folder.lock().unwrap());
    fs::remove_file(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    drop(folder.lock().unwrap());
    assert!(fs::metadata(&path).unwrap().is_file());
    assert_eq!(fs::metadata(&elsewhere).unwrap().nlink(), 1);
}

#[test]
fn a_folder_that_others_own_write_or_linked_is_refused_by_name() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("run");
    let refused = |what: &str| {
        let error = Folder::open(root.clone(), false).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains("run"), "{error}");
    };
    std::os::unix::fs::symlink(place.path(), &root).unwrap();
    refused("is not a folder");
    fs::remove_file(&root).unwrap();
    let _ = fs::remove_dir_all(place.path().join("sockets"));
    fs::create_dir(&root).unwrap();
    for mode in [0o777, 0o1777, 0o775] {
        fs::set_permissions(&root, Permissions::from_mode(mode)).unwrap();
        refused("lets other users write");
    }
    fs::set_permissions(&root, Permissions::from_mode(0o755)).unwrap();
    if geteuid().is_root() {
        let user = nix::unistd::Uid::from_raw(65_534);
        nix::unistd::chown(&root, Some(user), None).unwrap();
        refused("belongs to user 65534");
        nix::unistd::chown(&root, Some(geteuid()), None).unwrap();
    }
    let folder = Folder::open(root.clone(), false).unwrap();
    fs::remove_dir(root.join("sockets")).unwrap();
    std::os::unix::fs::symlink(place.path(), root.join("sockets")).unwrap();
    assert!(folder.make().is_err(), "also below it");
}

#[test]
fn a_folder_is_swept_of_what_is_the_daemons_and_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("run");
    let mut folder = Folder::open(root.clone(), true).unwrap();
    folder.claim().unwrap();
    fs::write(root.join("log"), "").unwrap();
    folder.count_start(1);
    folder.sweep();
    assert!(!root.exists());
    let mut folder = Folder::open(root.clone(), true).unwrap();
    folder.claim().unwrap();
    fs::write(root.join("registered/one.json"), "").unwrap();
    folder.sweep();
    assert!(root.join("registered/one.json").exists());
}

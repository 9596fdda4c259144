use super::*;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};

/// A machine whose `/run` has no folder for any user.
fn only(shm: &Path) -> Places<'_> {
    let run = Path::new("/nonexistent");
    Places { shm, run }
}

struct World {
    dir: tempfile::TempDir,
    uid: u32,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let uid = fs::metadata(dir.path()).unwrap().uid();
        Self { dir, uid }
    }

    fn folder(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }
}

#[test]
fn a_tenants_place_is_the_marked_one_while_it_can_be_made() {
    let world = World::new();
    let (run, given) = (world.folder("run", 0o700), world.folder("given", 0o700));
    let name = |name: &str| TenantName::parse(TENANT, name).unwrap();
    let mark = given.join("gpushare/c/a");
    let of = |tenant: &str, mark: &Path| {
        let mark = Some(mark.as_os_str());
        Root::of(&name(tenant), mark, Some(&run), world.uid).unwrap()
    };
    let usual = run.join("gpushare/c");
    for (tenant, mark, expected) in [
        ("a", &*mark, &given.join("gpushare/c")),
        ("b", &mark, &usual),
        ("a", Path::new("a"), &usual),
        ("a", Path::new(""), &usual),
        ("a", Path::new("c/a"), &usual),
    ] {
        let root = of(tenant, mark);
        assert_eq!((root.path(), root.passed_over()), (&**expected, None));
    }
    // Gone with all that is above it, or not ours alone.
    fs::remove_dir_all(&given).unwrap();
    let told = |root: Root| root.passed_over().unwrap().to_owned();
    let root = of("a", &mark);
    assert_eq!(root.path(), usual);
    assert!(told(root).contains("given/gpushare"));
    let open = world.folder("open", 0o755).join("a");
    assert!(told(of("a", &open)).contains("lets other users in"));
}

#[test]
fn a_private_runtime_folder_is_used() {
    let world = World::new();
    let (run, shm) = (world.folder("run", 0o700), world.folder("shm", 0o777));
    let root = Root::under(Some(&run), only(&shm), world.uid).unwrap();
    assert_eq!(root.path(), run.join("gpushare/c"));
    let name = TenantName::parse(TENANT, "a.b_c-1").unwrap();
    let made = root.create(&name, world.uid).unwrap();
    assert_eq!(
        (made.clone(), fs::metadata(&made).unwrap().mode() & 0o7777),
        (root.folder(&name), 0o700)
    );
    assert_eq!(
        root.create(&name, world.uid).unwrap(),
        made,
        "joining finds the same folder"
    );
}

#[test]
fn an_open_missing_foreign_or_linked_runtime_folder_is_passed_over() {
    let world = World::new();
    let (open, shm) = (world.folder("open", 0o755), world.folder("shm", 0o777));
    let link = world.dir.path().join("link");
    symlink(world.folder("private", 0o700), &link).unwrap();
    for run in [
        Some(open.as_path()),
        Some(Path::new("/nonexistent")),
        Some(Path::new("relative")),
        Some(&link),
        None,
    ] {
        let root = Root::under(run, only(&shm), world.uid).unwrap();
        assert_eq!(
            root.path(),
            shm.join(format!("gpushare-{}/c", world.uid)),
            "{run:?}"
        );
    }
}

#[test]
fn a_folder_others_could_have_made_is_refused_by_name() {
    let world = World::new();
    let shm = world.folder("shm", 0o777);
    let ours = format!("shm/gpushare-{}", world.uid);
    let elsewhere = world.folder("elsewhere", 0o700);
    symlink(&elsewhere, world.dir.path().join(&ours)).unwrap();
    let refused = |what: &str| {
        let error = Root::under(None, only(&shm), world.uid)
            .unwrap_err()
            .to_string();
        assert!(error.contains(&ours) && error.contains(what), "{error}");
    };
    refused("is not a folder");
    fs::remove_file(world.dir.path().join(&ours)).unwrap();
    world.folder(&ours, 0o770);
    refused("mode 0770");
    fs::set_permissions(world.dir.path().join(&ours), Permissions::from_mode(0o700)).unwrap();
    Root::under(None, only(&shm), world.uid).unwrap();
    let error = Root::under(None, only(&world.dir.path().join("missing")), world.uid)
        .unwrap_err()
        .to_string();
    assert!(error.contains("missing/gpushare-"), "{error}");
}

/// Files that another user may put where this user's folder would be.
fn squat(path: &Path, kind: &str, uid: u32, other: u32) {
    match kind {
        "folder" => fs::create_dir(path).unwrap(),
        "file" => fs::write(path, "").unwrap(),
        // To a folder that is the victim's own.
        _ => {
            let own = path.with_file_name("own");
            fs::create_dir_all(&own).unwrap();
            fs::set_permissions(&own, Permissions::from_mode(0o700)).unwrap();
            std::os::unix::fs::chown(&own, Some(uid), None).unwrap();
            symlink(own, path).unwrap();
        }
    }
    std::os::unix::fs::lchown(path, Some(other), None).unwrap();
}

#[test]
fn a_name_that_another_user_took_is_passed_over() {
    let world = World::new();
    if world.uid != 0 {
        eprintln!(
            "a_name_that_another_user_took_is_passed_over: not runnable here: only root can be several users"
        );
        return;
    }
    let (one, other) = (65_533, 65_534);
    for kind in ["folder", "file", "link"] {
        for uid in [0, one] {
            let (shm, run) = (
                world.folder(&format!("shm-{kind}-{uid}"), 0o1777),
                world.folder(&format!("run-{kind}-{uid}"), 0o755),
            );
            let own = run.join("user").join(one.to_string());
            fs::create_dir_all(&own).unwrap();
            fs::set_permissions(&own, Permissions::from_mode(0o700)).unwrap();
            std::os::unix::fs::chown(&own, Some(one), None).unwrap();
            let (places, usual) = (
                Places {
                    shm: &shm,
                    run: &run,
                },
                shm.join(format!("gpushare-{uid}")),
            );
            squat(&usual, kind, uid, other);
            let found = Root::under(None, places, uid);
            if uid == one {
                // Made by root here, so not the user's own; that it is looked for there is what
                // counts.
                let refused = found.unwrap_err().to_string();
                let there = own.join("gpushare-shm");
                assert!(refused.contains(&*there.to_string_lossy()), "{refused}");
                std::os::unix::fs::chown(&there, Some(one), None).unwrap();
                fs::create_dir(there.join("c")).unwrap();
                fs::set_permissions(there.join("c"), Permissions::from_mode(0o700)).unwrap();
                std::os::unix::fs::chown(there.join("c"), Some(one), None).unwrap();
                let found = Root::under(None, places, uid).unwrap();
                assert_eq!(found.path(), there.join("c"));
                continue;
            }
            let found = found.unwrap();
            assert_eq!(found.path(), run.join("gpushare-0/c"), "{kind}");
            let told = found.passed_over().unwrap();
            assert!(told.contains(&*usual.to_string_lossy()), "{told}");
            // Giving the name back does not split the processes.
            let _ = fs::remove_dir(&usual).or_else(|_| fs::remove_file(&usual));
            let again = Root::under(None, places, uid).unwrap();
            assert_eq!((again.path(), again.passed_over()), (found.path(), None));
        }
    }
}

#[test]
fn a_place_in_run_that_others_may_take_is_not_used() {
    let world = World::new();
    let (shm, run) = (world.folder("shm", 0o1777), world.folder("run", 0o777));
    let places = Places {
        shm: &shm,
        run: &run,
    };
    for uid in [0, 65_533] {
        assert_eq!(places.untakeable(uid), None);
    }
    let open = run.join("user").join(world.uid.to_string());
    fs::create_dir_all(&open).unwrap();
    fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
    if world.uid != 0 {
        assert_eq!(places.untakeable(world.uid), None);
    }
    let found = Root::under(None, places, world.uid).unwrap();
    let usual = shm.join(format!("gpushare-{}/c", world.uid));
    assert_eq!((found.path(), found.passed_over()), (&*usual, None));
}

#[test]
fn a_folder_of_another_user_is_refused() {
    let world = World::new();
    let found = fs::metadata(world.folder("own", 0o700)).unwrap();
    assert_eq!(fault(&found, world.uid), None);
    assert!(fault(&found, world.uid + 1).unwrap().contains("belongs to"));
}

#[test]
fn names_that_could_leave_the_folder_are_refused() {
    for name in [
        "",
        ".",
        "..",
        ".a",
        "a/b",
        "../a",
        "a b",
        "ä",
        "a\n",
        "a\0",
        &"a".repeat(65),
    ] {
        assert_eq!(
            TenantName::parse("--name", name).unwrap_err().variable,
            "--name",
            "{name:?}"
        );
    }
    for name in [
        "a",
        "A-1_.x",
        &"a".repeat(64),
        TenantName::of_process(12, 345).as_str(),
    ] {
        assert!(TenantName::parse(TENANT, name).is_ok(), "{name:?}");
    }
}

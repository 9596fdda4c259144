//! Where the host budget is used up, the memory of tenants that are out lies in files, and comes
//! back with every byte or not at all. The real daemon and the real library.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use gpushare_tests::runnable::not_runnable_here;
use gpushare_tests::{
    Daemon, Gpu, Guest, Home, MIB, Meeting, Tenant, artefacts, clients, links, until,
};

/// The smallest device, and a node that leaves room there for one and a half tenants and the
/// contexts of five.
pub(crate) const DEVICE: &str = "mem=64MiB,ctx=2MiB";
const NODE: &str = "reserve = \"18MiB\"\nfirst_context = \"4MiB\"\n[swap]\n";
/// The bytes that each tenant allocates: twelve ranges of the host store, which are of 2 MiB on so
/// small a host, and are written to files in two parts each.
pub(crate) const SIZE: u64 = 24 * MIB;
/// The least of that which is stored once another tenant has its host memory.
pub(crate) const MOST: u64 = 20 * MIB;
/// Host memory for one tenant, and the little that is kept for returns.
const HOST: u64 = 28;
/// Files for a part of a tenant (MiB): two ranges.
const LITTLE: u64 = 4;
/// The limit of a tenant that needs no more than that memory.
pub(crate) const LIMIT: &str = "24MiB";
pub(crate) const SWAP: [(&str, &str); 3] = [
    ("GPUSHARE_MEM_LIMIT", "36MiB"),
    ("GPUSHARE_IDLE_AFTER", "500ms"),
    ("GPUSHARE_ON_COLLISION", "swap"),
];

fn node(folder: &Path, limit: &str) -> String {
    let folder = folder.display();
    format!("{NODE}host = \"{HOST}MiB\"\nspill = \"{folder}\"\nspill_limit = \"{limit}\"\n")
}

/// A daemon that stores memory in a folder of the test.
pub(crate) struct Scene {
    _gpu: Gpu,
    pub(crate) daemon: Daemon,
    pub(crate) folder: tempfile::TempDir,
}

impl Scene {
    fn new(limit: &str) -> Self {
        Self::at(limit, |_| ())
    }

    fn at(limit: &str, prepare: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        prepare(folder.path());
        let text = node(folder.path(), limit);
        Self::of(folder, &text, &[])
    }

    /// Where calls on files may fail: the environment of `file_faults.c`.
    pub(crate) fn failing(environment: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let text = node(folder.path(), "256MiB");
        Self::preloaded(folder, &text, environment)
    }

    /// The same without a folder of the node's: commands name theirs.
    pub(crate) fn failing_without_folder(environment: &[(&str, &str)]) -> Self {
        Self::preloaded(
            tempfile::tempdir().expect("a folder"),
            &bare_node(),
            environment,
        )
    }

    fn preloaded(folder: tempfile::TempDir, text: &str, more: &[(&str, &str)]) -> Self {
        let library = clients::compile("file_faults", &["-shared", "-fPIC"]);
        let path = folder.path().to_owned();
        let text_of = |path: &Path| path.to_str().expect("a name").to_owned();
        let (library, path) = (text_of(&library), text_of(&path));
        let mut environment = vec![("LD_PRELOAD", &*library), ("FILE_FOLDER", &*path)];
        environment.extend(more);
        Self::of(folder, text, &environment)
    }

    fn of(folder: tempfile::TempDir, text: &str, environment: &[(&str, &str)]) -> Self {
        let gpu = Gpu::new(DEVICE);
        let daemon = Daemon::configured_in(&gpu, text, environment);
        Self {
            _gpu: gpu,
            daemon,
            folder,
        }
    }

    /// The daemon ends, and the next one may store so much.
    fn next_daemon(&mut self, limit: &str) {
        let control = self.daemon.control();
        let config = control.with_file_name("config.toml");
        fs::write(config, node(self.folder.path(), limit)).expect("the daemon's folder");
        self.daemon.restart();
    }

    fn tenant(&self, name: &str, terms: &[(&str, &str)]) -> (Tenant, Guest) {
        let tenant = self.daemon.tenant(name, terms);
        let mut guest = tenant.client("swapped", &[]);
        assert_eq!(guest.ask("init"), "init 0");
        (tenant, guest)
    }

    /// A tenant with its memory filled with a value.
    pub(crate) fn filled(&self, name: &str, value: u64) -> (Tenant, Guest) {
        let (tenant, mut guest) = self.tenant(name, &SWAP);
        assert_eq!(guest.ask(&format!("alloc {SIZE}")), "alloc 0");
        assert_eq!(guest.ask(&format!("fill {value}")), "fill 0");
        (tenant, guest)
    }

    /// The files in the folder that the daemon has open, each once: they have no names.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let open = format!("/proc/{}/fd", self.daemon.pid());
        let all = fs::read_dir(open).expect("a daemon").flatten();
        let mut files = BTreeMap::new();
        for entry in all {
            let path = entry.path();
            let target = fs::read_link(&path).unwrap_or_default();
            if target.starts_with(self.folder.path())
                && let Ok(found) = fs::metadata(&path)
                && found.is_file()
            {
                files.insert(found.ino(), path);
            }
        }
        files.into_values().collect()
    }

    /// Bytes on the disk.
    pub(crate) fn stored(&self) -> u64 {
        let files = self.files();
        let sizes = files.iter().filter_map(|file| fs::metadata(file).ok());
        sizes.map(|found| found.blocks() * 512).sum()
    }

    /// A tenant that is out, all of its memory in files, and a second one for which that was done.
    pub(crate) fn spilled(&self) -> [(Tenant, Guest); 2] {
        let one = self.filled("one", 3);
        self.daemon.suspend("one");
        let two = self.filled("two", 4);
        until("the memory of the first is not stored", || {
            self.stored() >= MOST && !self.daemon.events("spilled").is_empty()
        });
        [one, two]
    }
}

#[test]
fn three_tenants_on_the_host_memory_of_one_lose_no_byte() {
    let folder = tempfile::tempdir().expect("a folder");
    let home = Home::with_config(DEVICE, &node(folder.path(), "256MiB"));
    let all = Meeting::of(3);
    std::thread::scope(|scope| {
        for own in 1..=3_u64 {
            let (home, all) = (&home, &all);
            scope.spawn(move || {
                let flags = ["--on-collision", "swap", "--mem-limit", LIMIT];
                let mut command = home.run(&format!("tenant-{own}"), &flags);
                command.arg(clients::compile("swapped", &[]));
                let mut guest = Guest::start(command);
                assert_eq!(guest.ask("init"), "init 0");
                assert_eq!(guest.ask(&format!("alloc {SIZE}")), "alloc 0");
                all.attend();
                for round in 0..2 {
                    let value = own * 1000 + round;
                    assert_eq!(guest.ask(&format!("fill {value}")), "fill 0");
                    assert_eq!(guest.ask(&format!("check {value}")), "check 0");
                }
                assert!(guest.finish().silently().is_empty());
            });
        }
    });
    let output = home.gpushare(&["events"]);
    let said = String::from_utf8(output.stdout).expect("text");
    let words = [" left ", " returned ", " spilled ", " fetched "];
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
    let none = [" refused ", " memory-lost ", " spill-failed "];
    assert!(!none.iter().any(|word| said.contains(word)), "{said}");
    let left = fs::read_dir(folder.path()).expect("the folder").count();
    assert_eq!(left, 0, "nothing is left behind");
}

#[test]
fn a_spilled_tenant_comes_back_with_every_byte() {
    let scene = Scene::new("256MiB");
    let [(_one, mut first), (_two, mut second)] = scene.spilled();
    let (room, row) = scene.daemon.swaps("one");
    assert!(row.in_files >= MOST && room.files_used >= MOST, "{row:?}");
    assert_eq!((room.host, room.files), (HOST * MIB, 256 * MIB));
    assert_eq!(scene.daemon.swaps("two").1.in_files, 0, "the other is in");
    assert_eq!(first.ask("check 3"), "check 0");
    until("its bytes are on the disk still", || {
        !scene.daemon.events("fetched").is_empty()
    });
    assert_eq!(scene.daemon.swaps("one").1.in_files, 0);
    assert_eq!(second.ask("check 4"), "check 0");
    assert_eq!(first.ask("fill 5"), "fill 0");
    assert_eq!(second.ask("check 4"), "check 0");
    assert_eq!(first.ask("check 5"), "check 0");
    assert!(scene.daemon.events("memory-lost").is_empty());
}

#[test]
fn a_tenant_that_ends_takes_its_stored_bytes_with_it() {
    let scene = Scene::new("256MiB");
    let [(_one, first), (_two, mut second)] = scene.spilled();
    drop(first);
    until("its file is open still", || scene.files().is_empty());
    assert_eq!(second.ask("check 4"), "check 0");
}

#[test]
fn one_changed_bit_is_an_error_of_every_call_and_never_other_bytes() {
    let scene = Scene::new("256MiB");
    let [(_one, mut first), (_two, mut second)] = scene.spilled();
    let files = scene.files();
    let [file] = &files[..] else {
        panic!("{files:?}")
    };
    let file = OpenOptions::new().read(true).write(true).open(file);
    let file = file.expect("our own daemon's");
    let at = MIB + 77;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("a byte");
    file.write_all_at(&[byte[0] ^ 1], at).expect("a byte");
    // 46: the device is unavailable.
    assert_eq!(first.ask("check 3"), "check 1000000046");
    assert_eq!(first.ask("fill 9"), "fill 46");
    assert_eq!(first.ask("check 9"), "check 1000000046");
    let lost = scene.daemon.events("memory-lost");
    assert!(
        lost.iter().any(|text| text.contains("checksum")),
        "{lost:?}"
    );
    drop(first);
    assert_eq!(second.ask("check 4"), "check 0");
    assert_eq!(second.ask("fill 6"), "fill 0");
    assert_eq!(second.ask("check 6"), "check 0");
}

#[test]
fn a_spilled_tenant_outlives_its_daemon() {
    let mut scene = Scene::new("256MiB");
    let [(_one, mut first), (_two, mut second)] = scene.spilled();
    scene.daemon.restart();
    until("the files are not presented", || scene.stored() >= MOST);
    assert_eq!(first.ask("check 3"), "check 0");
    assert_eq!(second.ask("check 4"), "check 0");
    // A file system may take some blocks of a file for itself.
    until("the file of the previous daemon is open still", || {
        scene
            .files()
            .iter()
            .all(|file| fs::metadata(file).is_ok_and(|found| found.blocks() * 512 <= SIZE + MIB))
    });
}

/// Each daemon stores in a file of its own, and its process presents those of all before: more of
/// them in one burst than a connection has descriptors waiting.
#[test]
fn a_tenant_with_files_of_many_daemons_presents_them_all() {
    const FILES: u64 = 5;
    let mut scene = Scene::new(&format!("{LITTLE}MiB"));
    let (_one, mut first) = scene.filled("one", 3);
    scene.daemon.suspend("one");
    let (_two, mut second) = scene.filled("two", 4);
    for daemons in 1..=FILES {
        until("it does not store as much as it may", || {
            scene.files().len() as u64 == daemons && scene.stored() >= daemons * LITTLE * MIB
        });
        scene.next_daemon(&format!("{}MiB", (daemons + 1) * LITTLE));
    }
    scene.next_daemon("256MiB");
    until("not all are presented", || {
        scene.files().len() as u64 >= FILES
    });
    assert_eq!(first.ask("check 3"), "check 0");
    assert_eq!(second.ask("check 4"), "check 0");
    assert!(scene.daemon.events("memory-lost").is_empty());
}

#[test]
fn without_a_daemon_a_spilled_tenant_waits_for_the_next_one() {
    let mut scene = Scene::new("256MiB");
    let [(_one, mut first), (_two, mut second)] = scene.spilled();
    scene.daemon.kill();
    first.send("check 3");
    assert_eq!(second.ask("check 4"), "check 0");
    assert_eq!(second.ask("free"), "free 0");
    scene.daemon.restart();
    assert_eq!(first.line(), "check 0");
}

#[test]
fn a_daemon_killed_while_it_stores_loses_nothing() {
    let mut scene = Scene::new("256MiB");
    let (_one, mut first) = scene.filled("one", 3);
    scene.daemon.suspend("one");
    let (_two, mut second) = scene.filled("two", 4);
    until("nothing is stored", || scene.stored() > 0);
    scene.daemon.restart();
    assert_eq!(first.ask("check 3"), "check 0");
    assert_eq!(second.ask("check 4"), "check 0");
    assert_eq!(first.ask("check 3"), "check 0");
}

#[test]
fn beyond_the_limit_of_the_folder_memory_stays_and_that_is_told() {
    let scene = Scene::new(&format!("{LITTLE}MiB"));
    let (_one, mut first) = scene.filled("one", 3);
    let terms = [SWAP[0], ("GPUSHARE_ON_COLLISION", "swap,fail")];
    let (_two, mut second) = scene.tenant("two", &terms);
    assert_eq!(second.ask(&format!("alloc {SIZE}")), "alloc 2");
    assert_eq!(first.ask("check 3"), "check 0");
    assert!(!scene.daemon.events("host-full").is_empty());
    assert!(scene.stored() <= LITTLE * MIB);
}

#[test]
fn on_a_full_disk_the_next_resolver_decides_and_no_byte_is_lost() {
    let mut mounted = None;
    let scene = Scene::at("256MiB", |folder| mounted = Mount::small(folder));
    let Some(mounted) = mounted else {
        let test = "on_a_full_disk_the_next_resolver_decides_and_no_byte_is_lost";
        return not_runnable_here(test, "no file system can be mounted");
    };
    let (_one, mut first) = scene.filled("one", 3);
    scene.daemon.suspend("one");
    let (_two, mut second) = scene.filled("two", 4);
    until("the full disk is not told of", || {
        !scene.daemon.events("spill-failed").is_empty()
    });
    assert!(scene.stored() <= LITTLE * MIB);
    // The second has no host memory, so it stays.
    let terms = [SWAP[0], ("GPUSHARE_ON_COLLISION", "swap,fail")];
    let (_three, mut third) = scene.tenant("three", &terms);
    assert_eq!(third.ask(&format!("alloc {SIZE}")), "alloc 2");
    assert_eq!(second.ask("check 4"), "check 0");
    assert_eq!(second.ask("free"), "free 0");
    assert_eq!(first.ask("check 3"), "check 0");
    drop((first, second, third, scene));
    drop(mounted);
}

pub(crate) fn bare_node() -> String {
    format!("{NODE}host = \"{HOST}MiB\"\n")
}

/// A daemon with host memory for one tenant, and no folder of its own.
pub(crate) fn without_folder() -> Scene {
    Scene::of(tempfile::tempdir().expect("a folder"), &bare_node(), &[])
}

/// A file system of [`LITTLE`] in a folder; gone when dropped.
pub(crate) struct Mount(PathBuf);

impl Mount {
    pub(crate) fn small(folder: &Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        let options = format!("size={LITTLE}m,mode=0700");
        mount.args(["-t", "tmpfs", "-o", &options, "none"]);
        let mounted = mount.arg(folder).output().ok()?;
        mounted.status.success().then(|| Self(folder.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_folder_that_cannot_be_used_is_refused_at_the_start_by_name() {
    let place = tempfile::tempdir().expect("a folder");
    let missing = place.path().join("no/such/folder");
    let file = place.path().join("config.toml");
    for (text, words) in [
        (node(&missing, "1GiB"), ["[swap] spill", "no/such/folder"]),
        (node(Path::new("/proc"), "1GiB"), ["[swap] spill", "/proc"]),
        (
            node(Path::new("spill"), "1GiB"),
            ["\"spill\" is refused", "absolute"],
        ),
    ] {
        fs::write(&file, &text).expect("a file");
        let gpu = Gpu::new(DEVICE);
        let mut daemon = Command::new(artefacts::gpushared());
        daemon
            .env("LD_LIBRARY_PATH", links())
            .env("SOFTGPU", gpu.spec());
        daemon.arg("--private").arg("--config").arg(&file);
        daemon.arg("--runtime-dir").arg(place.path().join("run"));
        let output = daemon.output().expect("gpushared starts");
        assert!(!output.status.success(), "{text}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
}

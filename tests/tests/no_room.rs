//! A folder of tenants on a full file system: programs are refused, and work once there is room.

use std::fs::create_dir;
use std::process::Command;

use gpushare_tests::runnable::not_runnable_here;
use gpushare_tests::{Gpu, artefacts, clients};

/// Mounts a file system of 256 KiB over `$0` and fills it. There `$1 run` on the GPU `$2` is tried;
/// then the program `$3` is started without it, two times there and once with room.
const FULL: &str = "mount -t tmpfs -o size=256k,mode=0700 none \"$0\"
head -c 1M /dev/zero 2>/dev/null >\"$0\"/filler || :
\"$1\" run --daemon off --gpu \"$2\" --mem-limit 1GiB -- echo ran 2>&1 || echo ended $?
eval \"$(\"$1\" env --gpu \"$2\" --mem-limit 1GiB 2>/dev/null)\"
for turn in 1 2 3; do
    [ $turn != 3 ] || rm \"$0\"/filler
    echo init | \"$3\" 2>&1 && echo ended $? || echo ended $?
done";

#[test]
fn no_program_is_killed_by_a_page_without_room() {
    let test = "no_program_is_killed_by_a_page_without_room";
    let probe = Command::new("unshare").args(["-Urm", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        not_runnable_here(test, "a mount namespace needs root or a user namespace");
        return;
    }
    let gpu = Gpu::new("mem=4GiB");
    let folder = tempfile::tempdir_in(artefacts::cache()).unwrap();
    let runtime = folder.path().join("runtime");
    create_dir(&runtime).unwrap();
    let mut full = Command::new("unshare");
    full.args(["-Urm", "sh", "-c", FULL])
        .arg(&runtime)
        .arg(artefacts::gpushare())
        .arg(format!("soft:{}", gpu.spec()))
        .arg(clients::compile("closer", &[]))
        .env("TMPDIR", folder.path());
    let output = full.env("XDG_RUNTIME_DIR", &runtime).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 10, "{said}{output:?}");
    assert!(lines[0].contains("No space left on device"), "{said}");
    assert_eq!(lines[1], "ended 125", "{said}");
    for refused in [&lines[2..5], &lines[5..8]] {
        assert!(refused[0].contains("No space left on device"), "{said}");
        assert_ne!(refused[1], "init 0", "{said}");
        assert_eq!(refused[2], "ended 0", "{said}");
    }
    assert_eq!(lines[8..], ["init 0", "ended 0"], "{said}");
}

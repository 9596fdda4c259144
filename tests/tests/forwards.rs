//! A driver that passes each call on to another file, as `libcuda.so.1` does under WSL: it looks
//! the functions up in its own `cuInit`, and must find that file's, not ours. Each call of the
//! program is charged once.

use std::path::Path;

use gpushare_tests::guest::clean;
use gpushare_tests::{Gpu, Guest, MIB, artefacts, clients, gpu};

/// The client `quota`, which finds the driver's functions by `dlsym` or, with the flag, by
/// `cuGetProcAddress`, on a driver that forwards.
fn started(
    (gpu, runtime): (&Gpu, &Path),
    forwards_by: &str,
    flags: &[&str],
    preloads: bool,
) -> Guest {
    let mut command = clean(&clients::compile("quota", flags));
    let drivers = clients::driver("forwarding_driver");
    let libraries = format!("{}:{}", drivers.display(), gpu::links().display());
    command
        .env("SOFTGPU", gpu.spec())
        .env("LD_LIBRARY_PATH", libraries)
        .env("FORWARD_TO", artefacts::soft_cuda())
        .env("FORWARD_BY", forwards_by)
        .env("XDG_RUNTIME_DIR", runtime)
        .env("GPUSHARE_MEM_LIMIT", "64MiB");
    if preloads {
        command.env("LD_PRELOAD", artefacts::interposer());
    }
    Guest::start(command).started()
}

const FINDS: [&[&str]; 2] = [&[], &["-DBY_PROC_ADDRESS"]];

#[test]
fn a_driver_that_forwards_to_another_file_is_hooked_once() {
    let runtime = tempfile::tempdir().expect("a temporary folder");
    for forwards_by in ["handle", "default", "proc"] {
        for flags in FINDS {
            let gpu = Gpu::new("mem=1GiB,ctx=2MiB");
            let mut guest = started((&gpu, runtime.path()), forwards_by, flags, true);
            let how = format!("{forwards_by} {flags:?}");
            let free = |mib: u64| format!("info {} {} 0", mib * MIB, 64 * MIB);
            assert_eq!(guest.ask("info"), free(64), "{how}");
            guest.does(&format!("alloc {}", 48 * MIB));
            assert_eq!(guest.ask("info"), free(16), "{how}");
            assert_eq!(guest.ask(&format!("alloc {}", 32 * MIB)), "alloc 2");
            assert_eq!(gpu.truth().requested_now, 48 * MIB, "{how}");
            assert_eq!(guest.ask("check"), "check 1", "{how}");
            assert_eq!(guest.ask("free 1"), "free 0", "{how}");
            assert_eq!(guest.ask("info"), free(64), "{how}");
            guest.finish().silently();
        }
    }
}

#[test]
fn without_the_library_such_a_driver_has_all_of_the_device() {
    let runtime = tempfile::tempdir().expect("a temporary folder");
    for forwards_by in ["handle", "default", "proc"] {
        for flags in FINDS {
            let gpu = Gpu::new("mem=1GiB,ctx=2MiB");
            let mut guest = started((&gpu, runtime.path()), forwards_by, flags, false);
            guest.does(&format!("alloc {}", 128 * MIB));
            guest.finish().silently();
        }
    }
}

//! Memory opened from another process, memory on another device than the context's, and calls that
//! every driver refuses.

use gpushare_tests::{Daemon, GIB, Gpu, Guest, MIB, clients, guest, until};

#[test]
fn memory_opened_from_another_tenant_is_charged_to_its_maker() {
    let gpu = Gpu::new("mem=1GiB");
    let mut maker = Guest::client(&gpu, &["--mem-limit", "64MiB"], "share");
    let mut other = Guest::client(&gpu, &["--mem-limit", "16MiB"], "share");
    for guest in [&mut maker, &mut other] {
        assert_eq!(guest.ask("init 0"), "init 0");
    }
    assert_eq!(maker.ask(&format!("alloc {}", 48 * MIB)), "alloc 0");
    let exported = maker.ask("export");
    let handle = exported
        .strip_prefix("export 0 ")
        .unwrap_or_else(|| panic!("{exported}"));
    assert_eq!(
        other.ask(&format!("open {handle}")),
        "open 0",
        "three times the other's limit"
    );
    assert_eq!(other.ask("info"), format!("info {}", 16 * MIB));
    assert_eq!(
        other.ask(&format!("alloc {}", 16 * MIB)),
        "alloc 0",
        "all of its own limit"
    );
    assert_eq!(maker.ask("info"), format!("info {}", 16 * MIB));
    assert_eq!(
        (other.ask("close"), other.ask("free")),
        ("close 0".into(), "free 0".into())
    );
    assert_eq!(
        maker.ask("info"),
        format!("info {}", 16 * MIB),
        "closing credits no process"
    );
    assert_eq!(maker.ask("free"), "free 0");
    assert_eq!(maker.ask("info"), format!("info {}", 64 * MIB));
    for guest in [maker, other] {
        guest.finish().silently();
    }
}

#[test]
fn physical_memory_is_charged_where_it_lies_not_where_the_context_is() {
    let gpu = Gpu::new("count=2,mem=1GiB");
    let flags = ["--mem-limit", "0=64MiB", "--mem-limit", "1=32MiB"];
    let mut guest = Guest::client(&gpu, &flags, "share");
    let mut there = Guest::client(
        &gpu,
        &[&flags[..], &["--name", gpu.name()]].concat(),
        "share",
    );
    assert_eq!(guest.ask("init 0"), "init 0");
    assert_eq!(guest.ask(&format!("create 1 {}", 34 * MIB)), "create 2");
    assert_eq!(guest.ask(&format!("create 1 {}", 32 * MIB)), "create 0");
    assert_eq!(
        guest.ask("info"),
        format!("info {}", 64 * MIB),
        "the first device has all its quota"
    );
    assert_eq!(guest.ask(&format!("create 1 {}", 2 * MIB)), "create 2");
    assert_eq!(guest.ask(&format!("alloc {}", 64 * MIB)), "alloc 0");
    assert_eq!(guest.ask("release"), "release 0");
    assert_eq!(guest.ask(&format!("create 1 {}", 2 * MIB)), "create 0");
    assert_eq!(there.ask("init 1"), "init 0");
    assert_eq!(
        there.ask("info"),
        format!("info {}", 32 * MIB),
        "another tenant, another account"
    );
    for guest in [guest, there] {
        guest.finish().silently();
    }
}

#[test]
fn calls_no_driver_accepts_get_the_drivers_own_answer() {
    let gpu = Gpu::new("mem=2GiB");
    let mut hooked = Guest::client(&gpu, &["--mem-limit", "1GiB"], "share");
    let mut bare = Guest::start(guest::plain(&gpu, &clients::compile("share", &[])));
    for guest in [&mut hooked, &mut bare] {
        assert_eq!(guest.ask("init 0"), "init 0");
    }
    assert_eq!(hooked.ask("mistakes"), bare.ask("mistakes"));
    assert_eq!(
        hooked.ask("info"),
        format!("info {GIB}"),
        "and nothing is charged for them"
    );
    for guest in [hooked, bare] {
        guest.finish().silently();
    }
}

/// A program under a limit of 64 MiB that has made all of it, and exported it as a file.
fn exporter() -> (Gpu, Guest) {
    let gpu = Gpu::new("mem=1GiB,ctx=2MiB");
    let mut guest = Guest::client(&gpu, &["--mem-limit", "64MiB"], "segments");
    guest.does("init");
    guest.does(&format!("make 0 {} 1", 64 * MIB));
    guest.does("file 0");
    (gpu, guest)
}

/// Nothing fits until `last` is done, and then all of the limit does.
#[track_caller]
fn is_free_only_after(gpu: &Gpu, guest: &mut Guest, last: &str) {
    assert_eq!(held(gpu), 64 * MIB, "before {last}");
    guest.answers("info", "0");
    guest.answers("make 9 2097152 0", "2");
    guest.does(last);
    guest.answers("info", &(64 * MIB).to_string());
    guest.does(&format!("make 9 {} 0", 64 * MIB));
}

/// What the device has out beside the program's context, and does not wait for.
fn held(gpu: &Gpu) -> u64 {
    let truth = gpu.truth();
    truth.used_physical - truth.late - 2 * MIB
}

#[test]
fn memory_that_is_held_by_its_file_and_imported_again_stays_charged() {
    let (gpu, mut guest) = exporter();
    for line in ["drop 0", "import 1", "map 1", "close", "drop 1"] {
        guest.does(line);
    }
    is_free_only_after(&gpu, &mut guest, "unmap 1");
    guest.finish().silently();
}

#[test]
fn memory_with_a_second_handle_stays_charged_until_its_release() {
    let (gpu, mut guest) = exporter();
    for line in ["import 1", "drop 0", "close"] {
        guest.does(line);
    }
    is_free_only_after(&gpu, &mut guest, "drop 1");
    guest.finish().silently();
}

#[test]
fn memory_that_only_its_file_holds_stays_charged_until_it_is_closed() {
    let (gpu, mut guest) = exporter();
    guest.does("drop 0");
    is_free_only_after(&gpu, &mut guest, "close");
    guest.finish().silently();
}

#[test]
fn memory_whose_file_is_closed_is_free_with_its_last_handle() {
    let (gpu, mut guest) = exporter();
    guest.does("close");
    is_free_only_after(&gpu, &mut guest, "drop 0");
    guest.finish().silently();
}

#[test]
fn a_file_of_the_same_number_holds_only_its_own_memory() {
    let (gpu, mut guest) = exporter();
    for line in ["drop 0", "close", "make 1 33554432 1", "file 1"] {
        guest.does(line);
    }
    guest.answers("info", &(32 * MIB).to_string());
    for line in ["drop 1", "import 2", "close"] {
        guest.does(line);
    }
    guest.answers("info", &(32 * MIB).to_string());
    guest.does(&format!("make 3 {} 0", 32 * MIB));
    guest.does("drop 3");
    guest.does("drop 2");
    guest.answers("info", &(64 * MIB).to_string());
    assert_eq!(held(&gpu), 0);
    guest.finish().silently();
}

/// What `quiet` exported is its sibling's as soon as the file is closed, without a call of its own.
fn is_the_siblings_after_the_close(mut quiet: Guest, mut sibling: Guest) {
    for guest in [&mut quiet, &mut sibling] {
        guest.does("init");
    }
    let all = format!("make 0 {} 1", 64 * MIB);
    for line in [&*all, "file 0", "drop 0"] {
        quiet.does(line);
    }
    sibling.answers("info", "0");
    sibling.answers(&all, "2");
    quiet.does("close");
    until("the memory is free", || sibling.ask(&all) == "make 0");
    for guest in [quiet, sibling] {
        guest.finish().silently();
    }
}

#[test]
fn memory_whose_file_a_quiet_process_closes_is_its_siblings() {
    let gpu = Gpu::new("mem=1GiB");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "64MiB")]);
    let guest = || tenant.client("segments", &[]);
    is_the_siblings_after_the_close(guest(), guest());
}

#[test]
fn the_same_is_so_without_a_daemon_where_a_cap_binds() {
    let gpu = Gpu::new("mem=1GiB");
    let flags = [
        "--mem-limit",
        "64MiB",
        "--sm-limit",
        "90",
        "--name",
        gpu.name(),
    ];
    let guest = || Guest::client(&gpu, &flags, "segments");
    is_the_siblings_after_the_close(guest(), guest());
}

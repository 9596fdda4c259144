//! Memory opened from another process, memory on another device than the context's, and calls that
//! every driver refuses.

use gpushare_tests::{GIB, Gpu, Guest, MIB, clients, guest};

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

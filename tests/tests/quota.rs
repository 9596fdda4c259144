//! The main purpose: unmodified programs share one GPU, each with its own quota.

use gpushare_tests::{GIB, Gpu, Guest, MIB};

const OUT_OF_MEMORY: &str = "2";

#[test]
fn two_programs_under_different_quotas_stop_each_at_its_own_limit() {
    let gpu = Gpu::new("mem=16GiB");
    let mut small = Guest::client(&gpu, &["--mem-limit", "1GiB"], "quota");
    let mut large = Guest::client(&gpu, &["--mem-limit", "3GiB"], "quota");
    for guest in [&mut small, &mut large] {
        assert_eq!(guest.ask("preload"), "preload 1");
        assert_eq!(guest.ask("init"), "init 0");
    }
    assert_eq!(large.ask(&format!("alloc {GIB}")), "alloc 0");
    assert_eq!(
        small.ask(&format!("fill {}", 64 * MIB)),
        format!("fill 16 {OUT_OF_MEMORY}")
    );
    assert_eq!(
        large.ask("check"),
        "check 1",
        "the neighbour's memory is untouched"
    );
    assert_eq!(
        large.ask(&format!("fill {}", 64 * MIB)),
        format!("fill 32 {OUT_OF_MEMORY}"),
        "and so is its quota"
    );
    assert_eq!(small.ask("check"), "check 16");
    for guest in [small, large] {
        guest.finish().silently();
    }
}

#[test]
fn freed_memory_can_be_had_again_and_the_limit_still_holds() {
    let gpu = Gpu::new("");
    let mut guest = Guest::client(&gpu, &["--mem-limit", "512MiB"], "quota").started();
    for _ in 0..3 {
        assert_eq!(
            guest.ask(&format!("fill {}", 128 * MIB)),
            format!("fill 4 {OUT_OF_MEMORY}")
        );
        assert_eq!(
            guest.ask("alloc 512"),
            format!("alloc {OUT_OF_MEMORY}"),
            "full is full"
        );
        assert_eq!(guest.ask("free 4"), "free 0");
    }
    guest.finish().silently();
}

#[test]
fn a_program_sees_its_quota_as_the_devices_memory() {
    let gpu = Gpu::new("mem=16GiB");
    let mut guest = Guest::client(&gpu, &["--mem-limit", "2GiB"], "quota").started();
    assert_eq!(guest.ask("total"), format!("total {} 0", 2 * GIB));
    let info = guest.ask("info");
    let words: Vec<&str> = info.split(' ').collect();
    let free: u64 = words[1].parse().unwrap();
    assert!(free <= 2 * GIB && free > GIB, "{info}");
    assert_eq!((words[2], words[3]), ((2 * GIB).to_string().as_str(), "0"));
    guest.finish().silently();
}

#[test]
fn without_a_limit_the_device_is_the_limit() {
    let gpu = Gpu::new("mem=4GiB");
    let mut guest = Guest::client(&gpu, &[], "quota").started();
    assert_eq!(guest.ask("total"), format!("total {} 0", 4 * GIB));
    assert_eq!(guest.ask(&format!("alloc {}", 3 * GIB)), "alloc 0");
    guest.finish().silently();
}

#[test]
fn two_programs_of_one_name_share_one_quota() {
    let gpu = Gpu::new("");
    let flags = ["--mem-limit", "1GiB", "--name", gpu.name()];
    let [mut one, mut other] = [(); 2].map(|()| Guest::client(&gpu, &flags, "quota"));
    assert_eq!(
        (one.ask("init"), other.ask("init")),
        ("init 0".into(), "init 0".into())
    );
    assert_eq!(one.ask(&format!("alloc {}", 768 * MIB)), "alloc 0");
    assert_eq!(
        other.ask(&format!("alloc {}", 512 * MIB)),
        format!("alloc {OUT_OF_MEMORY}")
    );
    assert_eq!(other.ask(&format!("alloc {}", 256 * MIB)), "alloc 0");
    assert_eq!(one.ask("free 1"), "free 0");
    assert_eq!(other.ask(&format!("alloc {}", 768 * MIB)), "alloc 0");
    for guest in [one, other] {
        guest.finish().silently();
    }
}

#[test]
fn a_second_program_of_one_name_with_another_limit_is_refused() {
    let gpu = Gpu::new("");
    let name = format!("{}-differing", gpu.name());
    let mut one = Guest::client(&gpu, &["--mem-limit", "1GiB", "--name", &name], "quota").started();
    let other = Guest::client(&gpu, &["--mem-limit", "2GiB", "--name", &name], "quota");
    let ended = other.finish();
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    assert_eq!(
        one.ask(&format!("alloc {}", 768 * MIB)),
        "alloc 0",
        "the first still runs"
    );
    one.finish().silently();
}

//! Tenants that do not fit together on a device take turns there: their memory is moved to the host
//! and back by the real daemon and the real library, and no byte is lost.

use gpushare_tests::{Guest, Home, MIB, clients};

/// A node with host memory for swapping.
const HOST: &str = "[swap]\nhost = \"16GiB\"\n";

/// A program in a tenant of this name and these limits.
fn program(home: &Home, name: &str, flags: &[&str]) -> Guest {
    let mut command = home.run(name, flags);
    command.arg(clients::compile("movable", &[]));
    let mut guest = Guest::start(command);
    assert_eq!(guest.ask("init"), "init 0");
    guest
}

#[test]
fn two_tenants_on_a_device_of_one_and_a_half_lose_no_byte() {
    let home = Home::with_config("mem=1536MiB,ctx=16MiB", HOST);
    let flags = ["--on-collision", "swap", "--mem-limit", "1GiB"];
    let mut one = program(&home, "one", &flags);
    let alloc = format!("alloc 0 {}", 960 * MIB);
    assert_eq!(one.ask(&alloc), "alloc 0");
    assert_eq!(one.ask("fill 0 1"), "fill 0");
    let mut two = program(&home, "two", &flags);
    assert_eq!(two.ask(&alloc), "alloc 0");
    assert_eq!(two.ask("fill 0 2"), "fill 0");
    for _ in 0..2 {
        assert_eq!(one.ask("check 0 1"), "check 0");
        assert_eq!(two.ask("check 0 2"), "check 0");
    }
}

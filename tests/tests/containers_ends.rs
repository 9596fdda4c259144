//! Containers that have to end so that others have the memory that they borrowed.

use std::path::Path;

use gpushare_tests::container::{Bundle, Lab, Runtime};
use gpushare_tests::machine::ROOT;
use gpushare_tests::{GIB, clients, until};

#[test]
fn a_container_that_makes_room_ends_with_its_first_process() {
    let test = "a_container_that_makes_room_ends_with_its_first_process";
    let Some(lab) = Lab::start(test, "") else {
        return;
    };
    let quota = clients::compile("quota", &[]);
    // Its first process is no client, and would live on without it.
    let line = format!("echo $$; {}; exec sleep 1000", quota.display());
    let borrows = Bundle {
        program: ["sh", "-c", &line].map(str::to_owned).to_vec(),
        ..Bundle::new(
            "borrows",
            Runtime::ByHand,
            &[
                ("mem-limit", "12GiB"),
                ("mem-request", "1GiB"),
                ("preemptible", "kill"),
            ],
        )
    };
    let mut victim = lab.run(&borrows);
    let first = victim.line();
    let mut victim = victim.started();
    assert_eq!(victim.ask(&format!("alloc {}", 11 * GIB)), "alloc 0");
    let row = lab.row("borrows").expect("it runs");
    let client = row["processes"][0]["pid"].as_u64().expect("a pid");
    assert_ne!(first, client.to_string());
    let asks = [("mem-limit", "8GiB"), ("on-collision", "priority")];
    let mut guest = lab
        .run(&Bundle::new("needs", Runtime::ByHand, &asks))
        .started();
    assert_eq!(guest.ask(&format!("alloc {}", 8 * GIB)), "alloc 0");
    for pid in [first, client.to_string()] {
        let process = Path::new("/proc").join(&pid);
        until("a process of it is left", || !process.exists());
    }
    until("its tenant is left", || lab.row("borrows").is_none());
    let events = lab.machine().run(ROOT, &["events"]);
    let events = String::from_utf8_lossy(&events.stdout).into_owned();
    assert!(
        events.contains("SIGTERM: tenant needs needs memory"),
        "{events}"
    );
    drop(victim);
    guest.finish().silently();
}

//! Collisions as users see them: which tenant is ended for which, and the output of both.

use gpushare_tests::{GIB, Guest, Home, MIB, alloc, clients};

const GRANTED: &str = "alloc 0";
const REFUSED: &str = "alloc 2";
const BURST: [&str; 4] = ["--mem-request", "1GiB", "--mem-limit", "12GiB"];
const MAY_END: [&str; 2] = ["--preemptible", "kill"];
const LOW: [&str; 2] = ["--priority", "100"];
const MAKE_ROOM: [&str; 2] = ["--on-collision", "priority,wait"];

fn holds(home: &Home, name: &str, flags: &[&[&str]], bytes: u64) -> Guest {
    let mut guest = home.guest(name, &flags.concat());
    assert_eq!(guest.ask(&alloc(bytes)), GRANTED, "{name}");
    guest
}

#[test]
fn a_lower_burst_that_allows_it_is_ended_for_a_better_one() {
    let home = Home::new("mem=16GiB");
    let low = holds(&home, "low", &[&BURST, &MAY_END, &LOW], 10 * GIB);
    home.until("low", |row| row["overhead"] == 64 * MIB);
    let mut events = home.events();
    let mut high = home.guest("high", &[&BURST[..], &MAKE_ROOM].concat());
    assert_eq!(high.ask(&alloc(10 * GIB)), GRANTED);
    let ended = low.finish();
    assert_eq!(ended.status.code(), Some(143), "{ended:?}");
    let told = "tenant high needs memory that this one borrowed above its request: ";
    assert!(
        ended
            .stderr
            .contains(&format!("the program is ended: {told}")),
        "{ended:?}"
    );
    let event = events.until("ended", "low");
    let text = event["text"].as_str().expect("a text");
    assert!(text.contains("SIGTERM") && text.contains(told), "{event}");
    assert!(
        text.contains("10 GiB charged and 64 MiB of overhead on "),
        "{event}"
    );
    assert_eq!(high.ask("check"), "check 1");
    assert!(home.row("low").is_none(), "it has left the books");
}

#[test]
fn no_tenant_is_ended_within_its_request_or_without_consent() {
    let home = Home::new("mem=16GiB");
    let modest = ["--mem-request", "4GiB", "--mem-limit", "12GiB"];
    let mut modest = holds(&home, "modest", &[&modest, &MAY_END, &LOW], 4 * GIB);
    let mut firm = holds(&home, "firm", &[&BURST, &LOW], 4 * GIB);
    let victim = holds(&home, "victim", &[&BURST, &MAY_END, &LOW], 5 * GIB);
    let mut high = home.guest("high", &[&BURST[..], &MAKE_ROOM].concat());
    assert_eq!(high.ask(&alloc(5 * GIB)), GRANTED);
    assert_eq!(victim.finish().status.code(), Some(143));
    for guest in [&mut modest, &mut firm] {
        assert_eq!(guest.ask("check"), "check 1");
    }
    assert_eq!(high.ask("free 1"), "free 0");
    modest.finish().silently();
    firm.finish().silently();
}

#[test]
fn if_no_tenant_may_be_ended_the_higher_priority_waits_then_fails() {
    let home = Home::new("mem=16GiB");
    let timeout = ["--on-collision", "priority,wait", "--wait-timeout", "1s"];
    let mut firm = holds(&home, "firm", &[&BURST, &LOW], 10 * GIB);
    let mut high = home.guest("high", &[&BURST[..], &timeout].concat());
    high.send(&alloc(10 * GIB));
    home.events().until("waiting", "high");
    assert_eq!(high.line(), REFUSED);
    assert_eq!(high.ask(&alloc(GIB)), GRANTED);
    assert_eq!(firm.ask("check"), "check 1");
    firm.finish().silently();
}

#[test]
fn under_priority_alone_the_better_one_waits_for_what_is_given_back() {
    // Each look of the daemon at the device counts a few operations, and there is one look a
    // second.
    let home = Home::new("mem=16GiB,linger=16");
    let low = holds(&home, "low", &[&BURST, &MAY_END, &LOW], 10 * GIB);
    let mut other = holds(&home, "other", &[&BURST, &MAY_END, &LOW], GIB);
    let alone = ["--on-collision", "priority", "--wait-timeout", "5m"];
    let mut high = home.guest("high", &[&BURST[..], &alone].concat());
    let asked = std::time::Instant::now();
    assert_eq!(high.ask(&alloc(10 * GIB)), GRANTED);
    println!("served after {:.1} s", asked.elapsed().as_secs_f64());
    assert_eq!(low.finish().status.code(), Some(143));
    assert_eq!(
        other.ask("check"),
        "check 1",
        "no tenant is ended for a new one"
    );
    other.finish().silently();
}

#[test]
fn an_equal_burst_is_ended_when_it_is_idle() {
    let home = Home::new("mem=16GiB");
    let idle = holds(
        &home,
        "idle",
        &[&BURST, &MAY_END, &["--idle-after", "100ms"]],
        10 * GIB,
    );
    home.events().until("idle", "idle");
    let mut other = home.guest("other", &[&BURST[..], &MAKE_ROOM].concat());
    assert_eq!(other.ask(&alloc(10 * GIB)), GRANTED);
    assert_eq!(idle.finish().status.code(), Some(143));
}

#[test]
fn a_tenant_that_ignores_sigterm_is_killed_after_the_grace() {
    let home = Home::with_config("mem=16GiB", "term_grace = \"200ms\"\n");
    let mut deaf = home.run("deaf", &[&BURST[..], &MAY_END, &LOW].concat());
    deaf.args(["sh", "-c", "trap '' TERM; exec \"$0\""])
        .arg(clients::compile("quota", &[]));
    let mut deaf = Guest::start(deaf).started();
    assert_eq!(deaf.ask(&alloc(10 * GIB)), GRANTED);
    let mut events = home.events();
    let mut high = home.guest("high", &[&BURST[..], &MAKE_ROOM].concat());
    assert_eq!(high.ask(&alloc(10 * GIB)), GRANTED);
    let ended = deaf.finish();
    assert_eq!(ended.status.code(), Some(137), "{ended:?}");
    for signal in ["SIGTERM", "SIGKILL"] {
        let event = events.until("ended", "deaf");
        assert!(event["text"].as_str().unwrap().contains(signal), "{event}");
    }
}

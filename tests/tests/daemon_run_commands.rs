//! `gpushare ps` and `gpushare set` show and change the true state of tenants.

use gpushare_tests::gpu::links;
use gpushare_tests::{GIB, Guest, Home, MIB, alloc, clients, schema};
use serde_json::Value;

const GRANTED: &str = "alloc 0";
const REFUSED: &str = "alloc 2";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn ps_shows_working_waiting_and_idle_tenants_and_their_memory() {
    let home = Home::new("mem=16GiB");
    let burst = ["--mem-request", "1GiB", "--mem-limit", "12GiB"];
    let mut holder = home.guest("holder", &burst);
    assert_eq!(holder.ask(&alloc(10 * GIB)), GRANTED);
    let row = home.row("holder").unwrap();
    assert_eq!(
        (&row["request"], &row["limit"], &row["charged"]),
        (&GIB.into(), &(12 * GIB).into(), &(10 * GIB).into())
    );
    assert!(row["grant"].as_u64().unwrap() >= 10 * GIB, "{row}");
    assert_eq!(row["processes"][0]["charged"], 10 * GIB);

    let mut waiter = home.guest("waiter", &[&burst[..], &["--wait-timeout", "1h"]].concat());
    waiter.send(&alloc(10 * GIB));
    let row = home.until("waiter", |row| row["processes"][0]["state"] == "waiting");
    let short = row["processes"][0]["waits_for"].as_u64().unwrap();
    assert!(short > 0 && short <= 12 * GIB, "{row}");
    assert!(row["processes"][0]["for_ms"].is_u64(), "{row}");
    let table = text(&home.gpushare(&["ps"]).stdout);
    assert!(
        table.contains("waiting for ") && table.contains("10 GiB"),
        "{table}"
    );

    assert_eq!(holder.ask("free 1"), "free 0");
    assert_eq!(waiter.line(), GRANTED);
    let idle = home.guest("idle", &["--mem-limit", "1GiB", "--idle-after", "50ms"]);
    home.until("idle", |row| row["processes"][0]["state"] == "idle");
    assert!(idle.finish().status.success());
}

#[test]
fn a_lower_limit_takes_nothing_away_and_a_higher_one_is_there_at_once() {
    let home = Home::new("mem=16GiB");
    let mut guest = home.guest("one", &["--mem-limit", "4GiB"]);
    assert_eq!(guest.ask(&alloc(3 * GIB)), GRANTED);
    let set = |limit: &str| {
        let size = ["set", "one", "--mem-request", limit, "--mem-limit", limit];
        let output = home.gpushare(&size);
        assert!(output.status.success(), "{output:?}");
    };
    set("2GiB");
    assert_eq!(
        guest.ask("check"),
        "check 1",
        "the process keeps its memory"
    );
    assert_eq!(guest.ask(&alloc(64 * MIB)), REFUSED);
    assert_eq!(home.row("one").unwrap()["limit"], 2 * GIB);
    set("8GiB");
    assert_eq!(guest.ask(&alloc(4 * GIB)), GRANTED);
    assert_eq!(guest.ask(&alloc(2 * GIB)), REFUSED);
    assert_eq!(guest.ask("check"), "check 2");
    assert_eq!(guest.ask("total"), format!("total {} 0", 8 * GIB));
    guest.finish().silently();
}

#[test]
fn set_with_json_prints_the_tenant_as_it_is_then() {
    let home = Home::new("mem=16GiB,count=2");
    let _guest = home.guest("one", &["--mem-limit", "4GiB"]);
    let _other = home.guest("other", &["--mem-limit", "1GiB"]);
    let set = |size: &str| home.gpushare(&["set", "one", "--mem-request", size, "--json"]);
    let output = set("2GiB");
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("a list");
    assert_eq!(rows.len(), 2, "one for each of its devices");
    for row in &rows {
        schema::check("ps.json", row);
        let told = (&row["name"], &row["request"], &row["limit"]);
        assert_eq!(told, (&"one".into(), &(2 * GIB).into(), &(4 * GIB).into()));
    }
    // A refusal is an object, with the numbers, and nothing is printed of the tenant.
    let output = set("6GiB");
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty(), "{output:?}");
    let error: Value = serde_json::from_slice(&output.stderr).expect("an object");
    schema::check("error.json", &error);
    assert!(error["error"].to_string().contains("6GiB"), "{error}");
    // Without it nothing is printed.
    let output = home.gpushare(&["set", "one", "--mem-request", "1GiB"]);
    assert!(
        output.status.success() && output.stdout.is_empty(),
        "{output:?}"
    );
}

#[test]
fn a_lower_limit_alone_lowers_the_request_that_was_never_given() {
    let home = Home::new("mem=16GiB");
    let _guest = home.guest("one", &["--mem-limit", "4GiB"]);
    assert!(
        home.gpushare(&["set", "one", "--mem-limit", "2GiB"])
            .status
            .success()
    );
    let row = home.row("one").unwrap();
    assert_eq!(
        (&row["request"], &row["limit"]),
        (&(2 * GIB).into(), &(2 * GIB).into())
    );
}

#[test]
fn a_wrong_change_is_named_with_what_is_accepted_and_changes_nothing() {
    let home = Home::new("mem=16GiB");
    let _guest = home.guest("one", &["--mem-limit", "4GiB"]);
    let before = home.row("one").unwrap();
    // A flag that is wrong by itself is a usage error. The daemon refuses a flag that contradicts
    // the tenant's limits.
    let cases: [(&[&str], [&str; 3], i32); 6] = [
        (&["--mem-limit", "much"], ["--mem-limit", "much", "4GiB"], 2),
        (
            &["--mem-request", "6GiB"],
            ["--mem-request", "6GiB", "limit"],
            1,
        ),
        (&["--priority", "2000"], ["--priority", "2000", "1000"], 2),
        (
            &["--preemptible", "maybe"],
            ["--preemptible", "maybe", "kill"],
            2,
        ),
        (&["--wait-timeout", "7"], ["--wait-timeout", "7", "30s"], 2),
        (
            &["--sm-limit", "30", "--sm-limit", "40"],
            ["--sm-limit", "given twice", "give it once"],
            2,
        ),
    ];
    for (flags, words, status) in cases {
        let output = home.gpushare(&[&["set", "one"], flags].concat());
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{told}");
        for word in words {
            assert!(told.contains(word), "{word}: {told}");
        }
        let after = home.row("one").unwrap();
        for key in ["request", "limit"] {
            assert_eq!(after[key], before[key], "{flags:?}");
        }
    }
    let output = home.gpushare(&["set", "two", "--mem-limit", "1GiB"]);
    assert!(
        text(&output.stderr).contains("no tenant is named two"),
        "{output:?}"
    );
    let output = home.gpushare(&["set", "one"]);
    assert!(
        text(&output.stderr).contains("nothing to change"),
        "{output:?}"
    );
}

#[test]
fn nvml_inside_shows_the_tenant_as_set_and_its_processes_only() {
    let home = Home::new("mem=16GiB");
    let limit = ["--mem-limit", "2GiB"];
    let mut guest = home.guest("one", &limit);
    assert_eq!(guest.ask(&alloc(512 * MIB)), GRANTED);
    let mut other = home.guest("other", &["--mem-limit", "4GiB"]);
    assert_eq!(other.ask(&alloc(3 * GIB)), GRANTED);
    let monitor = || {
        let mut run = home.run("one", &limit);
        let output = run.arg(clients::compile("monitor", &[])).output().unwrap();
        text(&output.stdout)
    };
    let used = |seen: &str| -> u64 {
        let used = seen
            .split("used ")
            .nth(1)
            .and_then(|rest| rest.split(',').next());
        used.and_then(|digits| digits.parse().ok())
            .expect("a number")
    };
    let seen = monitor();
    assert!(
        seen.starts_with(&format!("memory: 0, total {}, ", 2 * GIB)),
        "{seen}"
    );
    assert!((512 * MIB..GIB).contains(&used(&seen)), "{seen}");
    assert!(seen.contains("\nprocesses: 0, 1\n"), "{seen}");
    assert!(
        home.gpushare(&["set", "one", "--mem-limit", "1GiB"])
            .status
            .success()
    );
    let mut late = home.run("one", &["--mem-limit", "1GiB"]);
    let output = late.arg(clients::compile("monitor", &[])).output().unwrap();
    let seen = text(&output.stdout);
    assert!(
        seen.starts_with(&format!("memory: 0, total {}, ", GIB)),
        "{seen} {output:?}"
    );
    for guest in [guest, other] {
        guest.finish().silently();
    }
}

#[test]
fn nvml_inside_hides_others_also_on_a_gpu_of_theirs_alone() {
    let home = Home::new("mem=16GiB,count=2");
    let on = |name: &str, gpu: &str, program: &str| {
        let mut run = home.run(name, &["--mem-limit", "2GiB"]);
        run.env("CUDA_VISIBLE_DEVICES", gpu);
        run.arg(clients::compile(program, &[]));
        run
    };
    let [one, other] = [("one", "1"), ("other", "0")].map(|(name, gpu)| {
        let mut guest = Guest::start(on(name, gpu, "quota"));
        assert_eq!(guest.ask("init"), "init 0");
        guest
    });
    // It asks about GPU 0.
    let seen = |name, gpu| text(&on(name, gpu, "monitor").output().unwrap().stdout);
    let (inside, outside) = (seen("other", "0"), seen("one", "1"));
    assert!(inside.contains("\nprocesses: 0, 1\n"), "{inside}");
    assert!(inside.contains(&format!("total {}, ", 2 * GIB)), "{inside}");
    assert!(outside.contains("\nprocesses: 0, 0\n"), "{outside}");
    assert!(
        outside.contains(&format!("total {}, ", 16 * GIB)),
        "{outside}"
    );
    for guest in [one, other] {
        guest.finish().silently();
    }
}

#[test]
fn devices_tells_what_the_driver_shows_and_what_the_daemon_knows() {
    let home = Home::new("mem=16GiB,count=2");
    let mut guest = home.guest("one", &["--mem-limit", "4GiB"]);
    assert_eq!(guest.ask(&alloc(3 * GIB)), GRANTED);
    let listed = |name: &str| {
        let mut command = home.command(&["devices", "--json"]);
        if !name.is_empty() {
            let spec = format!("name={name},mem=16GiB,count=2");
            command.env("SOFTGPU", spec).env("LD_LIBRARY_PATH", links());
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let rows = serde_json::from_slice::<Vec<Value>>(&output.stdout).unwrap();
        rows.iter()
            .for_each(|row| schema::check("devices.json", row));
        rows
    };
    // In the program's world: both devices, each with its accounts.
    let devices = listed(home.gpu().name());
    let ordinals: Vec<_> = devices.iter().map(|device| &device["ordinal"]).collect();
    assert_eq!(ordinals, [0, 1]);
    let node = &devices[0]["node"];
    assert!(node["granted"].as_u64().unwrap() >= 3 * GIB, "{node}");
    assert_eq!(node["capabilities"], serde_json::json!(["process-memory"]));
    assert_eq!(devices[1]["node"]["granted"], 0);
    let shown = node["device"].as_str().unwrap();
    assert_eq!(home.row("one").unwrap()["device"], shown);
    // Where programs would see no GPU, the daemon's devices are still listed; a GPU that the daemon
    // lacks belongs to no daemon.
    let others = listed("another");
    let node: Vec<bool> = others
        .iter()
        .map(|device| device["node"].is_object())
        .collect();
    assert_eq!(node, [false, false, true, true]);
    assert!(others[2]["ordinal"].is_null(), "{others:?}");
    guest.finish().silently();
}

#[test]
fn a_queued_tenant_has_a_row_that_says_what_it_waits_for() {
    let home = Home::new("mem=16GiB");
    let mut guest = home.guest("first", &["--mem-request", "12GiB"]);
    assert_eq!(guest.ask(&alloc(GIB)), GRANTED);
    let mut second = home.run("second", &["--mem-request", "10GiB"]);
    let mut second = second.arg("true").spawn().unwrap();
    let queued = |row: &Value| row["queued"]["why"].as_str().map(str::to_owned);
    let why = loop {
        if let Some(why) = home.row("second").as_ref().and_then(queued) {
            break why;
        }
    };
    assert!(why.contains("10 GiB") && why.contains("promised"), "{why}");
    let row = home.row("second").unwrap();
    assert_eq!(
        (&row["request"], &row["charged"]),
        (&(10 * GIB).into(), &0.into())
    );
    assert!(home.row("first").unwrap()["queued"].is_null());
    let table = text(&home.gpushare(&["ps"]).stdout);
    assert!(
        table.contains("queued for ") && table.contains("10 GiB"),
        "{table}"
    );
    let why = text(&home.gpushare(&["why", "second"]).stdout);
    assert!(why.contains("queued") && why.contains("promised"), "{why}");
    guest.finish().silently();
    assert!(second.wait().unwrap().success());
}

#[test]
fn a_tenant_without_a_daemon_has_a_row_while_it_lives() {
    let home = Home::new("mem=16GiB");
    let mut guest = home.guest("alone", &["--daemon", "off", "--mem-limit", "4GiB"]);
    assert_eq!(guest.ask(&alloc(GIB)), GRANTED);
    let row = home.row("alone").unwrap();
    assert_eq!(
        (&row["daemon"], &row["limit"], &row["charged"]),
        (&false.into(), &(4 * GIB).into(), &GIB.into())
    );
    assert_eq!(row["processes"].as_array().map(Vec::len), Some(1));
    let table = text(&home.gpushare(&["ps"]).stdout);
    assert!(table.contains("without a daemon"), "{table}");
    guest.finish().silently();
    let after = home.gpushare(&["ps"]);
    assert!(
        !after.status.success(),
        "nothing is left to show: {after:?}"
    );
}

#[test]
fn tables_fit_a_hundred_columns_and_choose_a_gpu() {
    let home = Home::new("mem=16GiB,count=2");
    let guests = [
        "a",
        "a-tenant-with-a-name-that-is-as-long-as-a-name-may-be-of-64-letters",
    ];
    let guests =
        guests.map(|name| home.guest(&name[..name.len().min(64)], &["--mem-limit", "1GiB"]));
    let table = text(&home.gpushare(&["ps"]).stdout);
    for line in table.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    let rows = |gpu: &str| -> Vec<Value> {
        let output = home.gpushare(&["ps", "--json", "--gpu", gpu]);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let all = home.ps();
    assert_eq!(all.len(), 4, "each on both");
    for gpu in 0..2 {
        let found = rows(&gpu.to_string());
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|row| row["gpu"] == gpu), "{found:?}");
        let uuid = found[0]["device"].as_str().unwrap();
        let by_uuid = rows(&uuid[..20]);
        assert!(by_uuid.len() == 2 && by_uuid.iter().all(|row| row["gpu"] == gpu));
    }
    let none = home.gpushare(&["ps", "--json", "--gpu", "7"]);
    assert_eq!(none.status.code(), Some(2), "{none:?}");
    for guest in guests {
        guest.finish().silently();
    }
}

#[test]
fn a_failure_without_and_with_a_daemon_has_its_own_status() {
    let home = Home::new("mem=16GiB");
    let status = |arguments: &[&str]| home.gpushare(arguments).status.code();
    let set = ["set", "absent", "--mem-limit", "1GiB"];
    for command in [&["ps"][..], &["metrics"], &["top", "--once"], &set] {
        assert_eq!(status(command), Some(3), "no daemon: {command:?}");
    }
    let _guest = home.guest("one", &["--mem-limit", "1GiB"]);
    assert_eq!(status(&["ps"]), Some(0));
    assert_eq!(status(&set), Some(1), "there is no such tenant");
    assert_eq!(status(&["why", "absent"]), Some(1));
    let page = ["report", "--html", "/no/such/folder/page.html"];
    assert_eq!(status(&page), Some(1));
}

#[test]
fn with_json_a_failure_is_an_object_on_standard_error() {
    let home = Home::new("mem=16GiB");
    for (command, status, part) in [
        (&["ps", "--json"][..], 3, "no daemon is running"),
        (&["why", "a", "--json", "--since", "soon"], 2, "--since"),
        (
            &["devices", "--json", "--no-such-flag"],
            2,
            "--no-such-flag",
        ),
    ] {
        let output = home.gpushare(command);
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        let told = text(&output.stderr);
        let last = told.lines().last().unwrap_or_default();
        let error: Value = serde_json::from_str(last).expect("an object");
        schema::check("error.json", &error);
        assert_eq!(error["status"], status);
        let said = error["error"].as_str().unwrap_or_default();
        assert!(said.contains(part), "{said}");
    }
    // Without the flag it is a sentence.
    let told = text(&home.gpushare(&["ps"]).stderr);
    assert!(told.starts_with("gpushare: no daemon"), "{told}");
}

#[test]
fn with_json_an_answer_that_fails_is_an_object_on_both_outputs() {
    let home = Home::new("mem=16GiB");
    let gpu = format!("soft:{}", home.gpu().spec());
    let doctor = ["doctor", "--json", "--gpu", &gpu];
    let whole = home.gpushare(&doctor);
    assert!(whole.stderr.is_empty(), "{whole:?}");
    let guest = home.guest("one", &["--mem-limit", "1GiB"]);
    let known = home.gpushare(&["why", "one", "--json"]);
    assert!(
        known.status.success() && known.stderr.is_empty(),
        "{known:?}"
    );
    let absent = home.gpushare(&["why", "absent", "--json"]);
    let mut ill = home.command(&doctor);
    ill.env("GPUSHARE_MEM_LIMIT", "much");
    let ill = ill.output().expect("gpushare runs");
    for (output, form, part) in [
        (absent, "why.json", "Nothing is known"),
        (ill, "doctor.json", "variables"),
    ] {
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let told: Value = serde_json::from_slice(&output.stdout).expect("an object");
        schema::check(form, &told);
        let said = text(&output.stderr);
        let last = said.lines().last().unwrap_or_default();
        let error: Value = serde_json::from_str(last).expect("an object");
        schema::check("error.json", &error);
        assert_eq!(error["status"], 1);
        let said = error["error"].as_str().unwrap_or_default();
        assert!(said.contains(part), "{said}");
    }
    guest.finish().silently();
}

#[test]
fn a_limit_below_what_a_tenant_holds_is_noted_and_explained() {
    let home = Home::new("mem=16GiB");
    let mut guest = home.guest("web", &["--mem-limit", "4GiB"]);
    assert_eq!(guest.ask(&format!("alloc {}", 3 * GIB)), "alloc 0");
    home.until("web", |row| row["charged"] == 3 * GIB);
    let set = |limit| {
        let output = home.gpushare(&["set", "web", "--mem-limit", limit]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let why = || {
        let output = home.gpushare(&["why", "web"]);
        String::from_utf8_lossy(&output.stdout).replace('\n', " ")
    };
    let told = set("1GiB");
    assert!(told.contains("note: web holds 3 GiB on GPU-"), "{told}");
    let told = why();
    assert!(
        told.contains("2 GiB more than its limit of 1 GiB"),
        "{told}"
    );
    assert!(!told.contains("nothing holds it up"), "{told}");
    assert_eq!(set("3GiB"), "");
    assert!(why().contains("nothing holds it up"));
    guest.finish().silently();
}

//! Metrics of a real daemon, as `gpushare metrics` prints them and the exporter serves them.

use gpushare_tests::artefacts;
use gpushare_tests::daemon::Daemon;
use gpushare_tests::gpu::Gpu;
use gpushare_tests::guest::clean;
use gpushare_tests::home::Home;
use gpushare_tests::machine::{Machine, ROOT};
use gpushare_tests::runnable::not_runnable_here;
use gpushare_tests::web::Exporter;
use gpushare_tests::{GIB, Guest, clients, until};

const MIB: u64 = 1 << 20;

/// The value of the first sample whose line begins so.
fn value(text: &str, start: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(start))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

fn printed(home: &Home, flags: &[&str]) -> String {
    let output = home.gpushare(&[&["metrics"], flags].concat());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_lone_tenant_at_work_has_time_of_its_kernels() {
    let home = Home::new("mem=16GiB");
    let guest = |name: &str| {
        let mut command = home.run(name, &["--mem-limit", "1GiB"]);
        command.arg(clients::compile("turns", &[]));
        let mut guest = Guest::start(command);
        assert_eq!(guest.ask("init"), "init 0");
        guest
    };
    let mut worker = guest("at-work");
    assert_eq!(worker.ask("launch 60 50000000"), "launch 0");
    let of = |metric: &str| {
        let name = format!("{metric}{{tenant=\"at-work\"");
        value(&printed(&home, &[]), &name).expect("a row")
    };
    until("NVML has seen a second of its kernels", || {
        of("gpushare_tenant_busy_seconds_total") >= 1.0
    });
    assert_eq!(of("gpushare_tenant_gpu_seconds_total"), 0.0, "not billed");
    assert_eq!(worker.ask("sync 1"), "sync 0");
    worker.finish().silently();
}

#[test]
fn what_a_program_charges_and_is_refused_is_in_the_metrics() {
    let home = Home::new("mem=16GiB");
    let mut guest = home.guest("metered", &["--mem-limit", "1GiB"]);
    assert_eq!(guest.ask(&format!("alloc {}", 700 * MIB)), "alloc 0");
    assert_eq!(guest.ask(&format!("alloc {}", 700 * MIB)), "alloc 2");
    let text = printed(&home, &[]);
    let of = |metric: &str| value(&text, &format!("{metric}{{tenant=\"metered\""));
    let mib = |count: u64| Some((count * MIB) as f64);
    assert_eq!(of("gpushare_tenant_memory_limit_bytes"), mib(1024));
    assert_eq!(of("gpushare_tenant_memory_charged_bytes"), mib(700));
    assert_eq!(of("gpushare_tenant_memory_peak_bytes"), mib(700));
    assert_eq!(of("gpushare_tenant_processes"), Some(1.0));
    assert_eq!(value(&text, "gpushare_daemon_up"), Some(1.0));
    assert_eq!(
        value(&text, "gpushare_admission_wait_seconds_count"),
        Some(1.0)
    );
    let refused = text
        .lines()
        .find(|line| line.contains("refused_total{") && line.contains("\"limit\""));
    let refused = refused.and_then(|line| line.rsplit_once(' '));
    assert!(
        refused.is_some_and(|(_, count)| count != "0"),
        "{refused:?}"
    );
    let info = text
        .lines()
        .find(|line| line.starts_with("gpushare_gpu_info{"));
    assert!(
        info.is_some_and(|line| line.contains("driver_version=\"")),
        "{info:?}"
    );
    let open = printed(&home, &["--openmetrics"]);
    assert!(
        open.ends_with("# EOF\n") && !text.contains("# EOF"),
        "{open}"
    );
}

/// An alert tells what was refused on a device. A user's tenant of such a name hides its own alone.
#[test]
fn what_the_trial_of_doctor_is_refused_is_not_counted_for_the_gpu() {
    let home = Home::new("mem=16GiB");
    let mut kept = home.guest("kept", &["--mem-limit", "1GiB"]);
    let gpu = format!("soft:{}", home.gpu().spec());
    let refused = || {
        let text = printed(&home, &[]);
        let lines = text.lines().filter(|line| {
            line.starts_with("gpushare_gpu_allocations_refused_total{")
                && line.contains("\"limit\"")
        });
        let counts = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        counts.sum::<f64>()
    };
    let said = home.gpushare(&["doctor", "--json", "--gpu", &gpu]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("a limit held"), "{said}");
    let names = home.gpushare(&["events", "--kind", "admitted"]);
    let names = String::from_utf8_lossy(&names.stdout).into_owned();
    assert!(names.contains("doctor-"), "{names}");
    assert_eq!(refused(), 0.0);
    assert_eq!(kept.ask(&format!("alloc {}", 2048 * MIB)), "alloc 2");
    until("the refusal is counted", || refused() > 0.0);
    kept.finish().silently();
}

#[test]
fn the_trace_and_the_page_have_each_tenant() {
    let home = Home::new("mem=16GiB");
    let guest = home.guest("traced", &["--mem-limit", "1GiB"]);
    let file = home.folder().join("trace.json");
    let output = home.command(&["events", "--perfetto"]).arg(&file).output();
    let output = output.expect("gpushare starts");
    assert!(
        output.status.success() && output.stdout.is_empty(),
        "{output:?}"
    );
    let text = std::fs::read_to_string(&file).expect("it is written");
    let page = home.folder().join("report.html");
    let output = home.command(&["report", "--html"]).arg(&page).output();
    assert!(output.expect("gpushare starts").status.success());
    let page = std::fs::read_to_string(&page).expect("it is written");
    assert!(
        page.contains("traced") && page.contains("may run"),
        "{page}"
    );
    let trace: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let all = trace["traceEvents"].as_array().expect("a list");
    let group = all
        .iter()
        .find(|event| event["args"]["name"] == "tenant traced");
    let pid = &group.expect("a group")["pid"];
    let runs = all
        .iter()
        .find(|event| event["pid"] == *pid && event["name"] == "runs");
    assert!(runs.is_some_and(|event| event["ph"] == "X"), "{text}");
    drop(guest);
}

#[test]
fn a_report_after_the_daemon_has_left_is_of_the_journal() {
    let home = Home::new("mem=16GiB");
    let name = format!("left-{}", std::process::id());
    let guest = home.guest(&name, &["--mem-limit", "1GiB"]);
    guest.finish().silently();
    home.until_no_daemon();
    let page = home.folder().join("report.html");
    let output = home.command(&["report", "--html"]).arg(&page).output();
    let output = output.expect("gpushare starts");
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        told.contains("no daemon") && told.contains("journal"),
        "{told}"
    );
    let page = std::fs::read_to_string(&page).expect("it is written");
    for words in ["No daemon serves", &name, "ran for"] {
        assert!(page.contains(words), "{words} in {page}");
    }
    // Counters are gone with their daemon.
    let output = home.gpushare(&["metrics"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("gpushare events --kind gone"), "{told}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("gpushare_daemon_up 0"));
}

#[test]
fn a_trace_has_waits_that_go_on_that_are_served_and_that_are_refused() {
    let home = Home::new("mem=16GiB");
    let burst = ["--mem-request", "1GiB", "--mem-limit", "12GiB"];
    let waits = |wait| [&burst[..], &["--wait-timeout", wait]].concat();
    let alloc = format!("alloc {}", 10 * GIB);
    let ends = |name: &str| -> Vec<String> {
        let file = home.folder().join("trace.json");
        let output = home.command(&["events", "--perfetto"]).arg(&file).output();
        assert!(output.expect("gpushare starts").status.success());
        let trace = std::fs::read(&file).expect("it is written");
        let trace: serde_json::Value = serde_json::from_slice(&trace).expect("JSON");
        let all = trace["traceEvents"].as_array().expect("a list");
        let group = format!("tenant {name}");
        let mut groups = all.iter().filter(|event| event["args"]["name"] == group);
        let pid = &groups.next().expect("a group")["pid"];
        let waits = all
            .iter()
            .filter(|event| event["pid"] == *pid && event["name"] == "waits for memory");
        let ends = waits.map(|event| event["args"]["text"].as_str().expect("words").to_owned());
        ends.collect()
    };
    let mut holder = home.guest("holder", &burst);
    assert_eq!(holder.ask(&alloc), "alloc 0");
    let mut short = home.guest("short", &waits("300ms"));
    assert_eq!(short.ask(&alloc), "alloc 2");
    let mut long = home.guest("long", &waits("1h"));
    long.send(&alloc);
    home.until("long", |row| row["processes"][0]["state"] == "waiting");
    assert_eq!(ends("long"), ["it waits now"]);
    // Refusals are told once a second.
    until("the refusal ends the wait", || {
        let ends = ends("short");
        let refused = "): after waiting as long as it may";
        ends.len() == 1 && ends[0].contains(refused)
    });
    // One also ends where its tenant's limit is lowered.
    let mut lowered = home.guest("lowered", &waits("1h"));
    lowered.send(&alloc);
    home.until("lowered", |row| row["processes"][0]["state"] == "waiting");
    let set = home.gpushare(&["set", "lowered", "--mem-limit", "2GiB"]);
    assert!(set.status.success(), "{set:?}");
    assert_eq!(lowered.line(), "alloc 2");
    until("the refusal ends the wait", || {
        let ends = ends("lowered");
        ends.len() == 1 && ends[0].contains("): over its own limit")
    });
    assert_eq!(holder.ask("free 1"), "free 0");
    assert_eq!(long.line(), "alloc 0");
    assert_eq!(ends("long"), ["it has its memory"]);
    assert!(ends("holder").is_empty());
}

#[test]
fn the_exporter_serves_both_formats_and_says_when_the_daemon_is_gone() {
    let mut daemon = Daemon::start(&Gpu::new("mem=16GiB"));
    let _tenant = daemon.tenant("served", &[("GPUSHARE_MEM_LIMIT", "2GiB")]);
    let folder = daemon.control();
    let exporter = Exporter::start(folder.parent().expect("a folder"));
    let page = exporter.get("/metrics", &[]);
    assert!(page.status.contains(" 200 "), "{page:?}");
    assert!(page.head.contains("text/plain; version=0.0.4"), "{page:?}");
    assert!(
        page.body.contains("gpushare_tenant_info{tenant=\"served\""),
        "{page:?}"
    );
    let open = exporter.get(
        "/metrics",
        &["Accept: application/openmetrics-text;version=1.0.0"],
    );
    assert!(
        open.head.contains("application/openmetrics-text"),
        "{open:?}"
    );
    assert!(open.body.ends_with("# EOF\n"), "{open:?}");
    assert!(exporter.get("/nowhere", &[]).status.contains(" 404 "));
    let page = exporter.get("/", &[]);
    assert!(page.head.contains("text/html"), "{page:?}");
    assert!(
        page.body.contains("served") && page.body.contains("<svg"),
        "{page:?}"
    );
    daemon.kill();
    let page = exporter.get("/metrics", &[]);
    assert!(page.status.contains(" 200 "), "{page:?}");
    assert_eq!(value(&page.body, "gpushare_daemon_up"), Some(0.0));
    assert!(!page.body.contains("served"), "{page:?}");
    // The page may be some seconds old.
    until("the page says that no daemon answers", || {
        exporter.get("/", &[]).status.contains(" 503 ")
    });
    daemon.restart();
    assert_eq!(value(&exporter.metrics(), "gpushare_daemon_up"), Some(1.0));
}

#[test]
fn the_page_names_the_host_also_where_proc_sys_is_hidden() {
    let test = "the_page_names_the_host_also_where_proc_sys_is_hidden";
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("it has a name");
    let title = format!("<title>gpushare on {}</title>", name.trim());
    let daemon = Daemon::start(&Gpu::new("mem=16GiB"));
    let folder = daemon.control();
    let folder = folder.parent().expect("a folder");
    let page = Exporter::start(folder).get("/", &[]).body;
    assert!(page.contains(&title), "{page}");
    if !nix::unistd::geteuid().is_root() {
        not_runnable_here(test, "only root can hide /proc/sys");
        return;
    }
    // As `ProcSubset=pid` of its unit does it.
    let mut hidden = clean("unshare".as_ref());
    hidden.args(["--mount", "sh", "-c"]);
    hidden.arg("mount -t tmpfs none /proc/sys && exec \"$0\" \"$@\"");
    hidden.arg(artefacts::exporter());
    let page = Exporter::of(hidden, folder).get("/", &[]).body;
    assert!(page.contains(&title), "{page}");
}

/// A collector's file would otherwise say for ever that the daemon answers.
#[test]
fn metrics_say_that_no_daemon_answers() {
    let home = Home::new("mem=16GiB");
    let output = home.gpushare(&["metrics"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(value(&text, "gpushare_daemon_up"), Some(0.0), "{text}");
    assert_eq!(value(&text, "gpushare_build_info"), None, "{text}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("no daemon"), "{told}");
}

/// A private daemon's answer would say that the machine's is up.
#[test]
fn metrics_say_that_the_machines_daemon_is_down_beside_a_private_one() {
    let test = "metrics_say_that_the_machines_daemon_is_down_beside_a_private_one";
    let Some(mut machine) = Machine::start(test) else {
        return;
    };
    let mut run = machine.gpushare(ROOT, &["run", "--gpu", "soft:name=own", "--name", "try"]);
    run.arg("--").arg(clients::compile("quota", &[]));
    let guest = Guest::start(run).started();
    let asked = |machine: &Machine| {
        let output = machine.run(ROOT, &["metrics"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let is_up = value(&text, "gpushare_daemon_up");
        (output.status.code(), is_up, text.contains("\"try\""))
    };
    assert_eq!(
        asked(&machine),
        (Some(0), Some(1.0), false),
        "the machine's"
    );
    machine.kill_daemon();
    assert_eq!(asked(&machine), (Some(3), Some(0.0), false));
    let top = machine.run(ROOT, &["top", "--once"]);
    let told = String::from_utf8_lossy(&top.stderr);
    assert!(told.contains("/run/gpushare is stopped"), "{top:?}");
    assert_eq!(top.status.code(), Some(3), "{top:?}");
    machine.sh(ROOT, "rm -r /run/gpushare");
    assert_eq!(asked(&machine), (Some(0), Some(1.0), true), "there is none");
    guest.finish().silently();
}

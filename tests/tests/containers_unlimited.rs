//! Containers that have a GPU and ask for nothing, on a node where limits are mandatory.

use gpushare_tests::container::{Bundle, Door, Lab, Runtime};
use gpushare_tests::guest::Guest;
use gpushare_tests::machine::{OWN_ETC, ROOT};
use gpushare_tests::runnable::not_runnable_here;
use gpushare_tests::{GIB, artefacts, schema, until};
use serde_json::Value;

const CONFIG: &str = "[containers]\nunlimited = \"deny\"\n\
    [[containers.rules]]\nnamespace = \"team\"\nunlimited = \"maxima\"\n\
    [containers.rules.maxima]\nGPUSHARE_MEM_LIMIT = \"2GiB\"\n\
    [[containers.rules]]\nnamespace = \"system\"\nunlimited = \"allow\"\n";

fn lab(config: &str) -> Option<Lab> {
    let test = std::thread::current();
    Lab::start(test.name().unwrap_or("containers_unlimited"), config)
}

/// A container of this namespace that has the machine's GPU, or none, and asks for nothing.
fn silent(id: &str, namespace: &str, gpu: &str) -> Bundle {
    let of = "io.kubernetes.cri.sandbox-namespace";
    Bundle {
        annotations: vec![(of.to_owned(), namespace.to_owned())],
        environment: vec![format!("NVIDIA_VISIBLE_DEVICES={gpu}")],
        ..Bundle::new(id, Runtime::ByHand, &[])
    }
}

/// The memory that its program finds.
#[track_caller]
fn total(lab: &Lab, bundle: &Bundle) -> String {
    let mut guest = lab.run(bundle).started();
    let total = guest.ask("total");
    guest.finish().silently();
    total
}

#[track_caller]
fn refused(lab: &Lab, bundle: &Bundle, word: &str) {
    let ended = lab.ends(bundle);
    assert!(
        !ended.status.success() && ended.stdout.is_empty(),
        "{ended:?}"
    );
    assert!(ended.stderr.contains(word), "{ended:?}");
}

#[test]
fn no_container_with_a_gpu_runs_without_limits_where_they_are_mandatory() {
    let Some(mut lab) = lab(CONFIG) else { return };
    let limit = format!("total {} 0", 2 * GIB);
    refused(&lab, &silent("one", "other", "0"), "gpushare.io/mem-limit");
    assert_eq!(total(&lab, &silent("two", "team", "0")), limit);
    assert_ne!(total(&lab, &silent("three", "system", "0")), limit);
    assert!(lab.row("three").is_none());
    let without = silent("four", "other", "void");
    assert_ne!(total(&lab, &without), limit, "it has none to limit");
    let mut asks = silent("five", "other", "0");
    asks.annotations
        .push(("gpushare.io/mem-limit".to_owned(), "2GiB".to_owned()));
    assert_eq!(total(&lab, &asks), limit);
    // What an image may say of itself is no limit.
    let mut priority = silent("nine", "other", "0");
    priority
        .environment
        .push("GPUSHARE_PRIORITY=400".to_owned());
    refused(&lab, &priority, "GPUSHARE_MEM_LIMIT");
    // Also while no daemon runs, with its rules as it told them last.
    lab.kill_daemon();
    refused(&lab, &silent("six", "other", "0"), "does not answer");
    refused(&lab, &silent("ten", "team", "0"), "does not answer");
    assert_ne!(total(&lab, &silent("seven", "system", "0")), limit);
    assert_ne!(total(&lab, &silent("eight", "other", "void")), limit);
}

#[test]
fn a_container_that_asks_for_nothing_runs_as_it_is_by_default() {
    let Some(mut lab) = lab("") else { return };
    let whole = total(&lab, &silent("one", "team", "0"));
    assert_ne!(whole, format!("total {} 0", 2 * GIB));
    until("nothing is left of it", || lab.row("one").is_none());
    lab.kill_daemon();
    assert_eq!(total(&lab, &silent("two", "team", "0")), whole);
}

const ENDS: &str = "unmanaged = \"end\"\nunmanaged_root = true\nunmanaged_grace = \"1s\"\n\
    [[containers.rules]]\nnamespace = \"team\"\nunlimited = \"maxima\"\n\
    [containers.rules.maxima]\nGPUSHARE_MEM_LIMIT = \"2GiB\"\n\
    [[containers.rules]]\nnamespace = \"system\"\nunlimited = \"allow\"\n";

/// How many events of this kind have this word in their text.
fn told(lab: &Lab, kind: &str, word: &str) -> usize {
    let told = lab
        .machine()
        .run(ROOT, &["events", "--json", "--kind", kind]);
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    told.lines().filter(|line| line.contains(word)).count()
}

/// A container of this namespace whose program computes.
fn computes(lab: &Lab, id: &str, namespace: &str) -> Guest {
    let mut guest = lab.run(&silent(id, namespace, "0")).started();
    assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0");
    guest
}

/// The container `two` is left alone and lives, and another one is ended: so often by now.
fn is_alone_spared(lab: &Lab, two: &mut Guest, times: usize) {
    until("the one is left alone", || {
        told(lab, "unmanaged-spared", "container two") == times
    });
    until("the other is ended", || {
        told(lab, "unmanaged-ended", "SIGTERM") == times
    });
    assert_eq!(two.ask(&format!("alloc {GIB}")), "alloc 0");
    assert!(lab.row("two").is_none(), "it is no tenant");
}

#[test]
fn what_a_rule_allows_is_not_ended_and_what_only_the_node_allows_is() {
    let Some(mut lab) = lab(ENDS) else { return };
    // A tenant's program shows that NVML lists pids of this machine.
    let tenant = computes(&lab, "one", "team");
    let mut system = computes(&lab, "two", "system");
    let other = computes(&lab, "three", "other");
    is_alone_spared(&lab, &mut system, 1);
    drop(other);
    // The next daemon knows it too.
    lab.restart_daemon();
    let later = computes(&lab, "four", "other");
    is_alone_spared(&lab, &mut system, 2);
    drop(later);
    system.finish().silently();
    tenant.finish().silently();
}

/// Podman and CRI-O look in the folder of `/usr/share` alone, unless their settings say more.
#[test]
#[ignore = "long tier: needs Podman"]
fn podmans_hooks_for_all_count_where_its_settings_name_their_folder() {
    let test = "podmans_hooks_for_all_count_where_its_settings_name_their_folder";
    let Some(lab) = lab(CONFIG) else { return };
    if lab.sh("command -v podman || true").is_empty() {
        return not_runnable_here(test, "podman is not installed");
    }
    lab.sh(OWN_ETC);
    let hook = artefacts::folder().join("gpushare-oci-hook");
    let hook = hook.display();
    lab.sh(&format!(
        "mkdir -p /etc/containers/oci/hooks.d /etc/containers/containers.conf.d && \
         cat >/etc/containers/oci/hooks.d/gpushare.json <<'END'\n\
         {{\"version\": \"1.0.0\", \"hook\": {{\"path\": \"{hook}\", \"args\": [\"{hook}\", \
         \"--library\", \"/var/lib/lab/library\", \"createRuntime\"]}}, \
         \"when\": {{\"always\": true}}, \"stages\": [\"createRuntime\"]}}\nEND"
    ));
    let bundle = |id: &str| Bundle {
        runtime: Runtime::Podman("runc"),
        door: Door::None,
        ..silent(id, "other", "0")
    };
    let whole = total(&lab, &bundle("one"));
    assert_ne!(whole, format!("total {} 0", 2 * GIB));
    lab.sh(
        "printf '[engine]\nhooks_dir = [\"/usr/share/containers/oci/hooks.d\", \
         \"/etc/containers/oci/hooks.d\"]\n' >/etc/containers/containers.conf.d/gpushare.conf",
    );
    refused(&lab, &bundle("two"), "gpushare.io/mem-limit");
}

#[test]
fn a_container_that_is_refused_is_told_on_the_node_and_others_are_not() {
    let Some(lab) = lab(CONFIG) else { return };
    refused(&lab, &silent("one", "other", "0"), "gpushare.io/mem-limit");
    let mut priority = silent("two", "other", "0");
    priority
        .environment
        .push("GPUSHARE_PRIORITY=400".to_owned());
    refused(&lab, &priority, "GPUSHARE_MEM_LIMIT");
    total(&lab, &silent("three", "team", "0"));
    total(&lab, &silent("four", "system", "0"));
    let arguments = ["events", "--json", "--kind", "container-refused"];
    let told = lab.machine().run(ROOT, &arguments);
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let line = |line| serde_json::from_str::<Value>(line).expect("JSON");
    let told: Vec<Value> = told.lines().map(line).collect();
    let ids = told.iter().map(|one| &one["facts"]["container_id"]);
    assert_eq!(ids.collect::<Vec<_>>(), ["one", "two"], "{told:?}");
    for event in &told {
        schema::check("event.json", event);
        assert_eq!(event["facts"]["reason"], "rule");
        assert_eq!(event["facts"]["namespace"], "other");
    }
}

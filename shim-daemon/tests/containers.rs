//! Tenants that are containers: the processes that belong to one, its lifetime, and refusals.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::container_node::*;
use gpushare_core::Nanos;
use gpushare_protocol::wire::{ErrorCode, Injection, Linkage, PodRow};
use gpushared::groups::Groups;
use gpushared::node::{Effect, Settings};

#[test]
fn a_containers_processes_are_those_in_its_cgroup_and_no_others() {
    let mut machine = Machine::new();
    let first = First::start(&group("a"));
    let tenant = machine.inject(&asks("a", "1GiB"), &first).unwrap();
    for uid in [ROOT, ALICE, 100_000] {
        machine.joins(tenant, uid, &group("a")).unwrap();
        let nested = group("a").replace('\n', "/docker/b\n");
        machine.joins(tenant, uid, &nested).unwrap();
        for other in [RUNTIME, "", "0::/\n", &group("b"), &group("ab")] {
            let refused = machine.joins(tenant, uid, other).unwrap_err();
            assert_eq!(refused.code, ErrorCode::Forbidden, "{uid} from {other}");
            assert!(refused.message.contains("container a"), "{refused}");
        }
    }
}

#[test]
fn a_container_follows_its_init_into_another_cgroup() {
    let mut machine = Machine::new();
    let first = First::start(&group("a"));
    let tenant = machine.inject(&asks("a", "1GiB"), &first).unwrap();
    first.moves(&group("moved"));
    machine.joins(tenant, ROOT, &group("moved")).unwrap();
    machine.joins(tenant, ROOT, &group("a")).unwrap_err();
}

#[test]
fn an_init_that_moves_into_a_leaf_takes_its_container_along() {
    let mut machine = Machine::new();
    let first = First::start(&group("a"));
    let tenant = machine.inject(&asks("a", "1GiB"), &first).unwrap();
    let below = |name: &str| group("a").replace('\n', &format!("/{name}\n"));
    // As systemd does, and Docker in a container: a group that delegates holds no process.
    first.moves(&below("init.scope"));
    for own in [group("a"), below("init.scope"), below("system.slice/ssh")] {
        machine.joins(tenant, ROOT, &own).unwrap();
    }
    for other in [RUNTIME, "", "0::/\n", &group("b"), &group("ab")] {
        machine.joins(tenant, ROOT, other).unwrap_err();
    }
}

#[test]
fn an_init_that_moves_up_takes_nobody_in() {
    let mut machine = Machine::new();
    let first = First::start(&group("a"));
    let tenant = machine.inject(&asks("a", "1GiB"), &first).unwrap();
    for up in [
        "9:memory:/\n4:cpu,cpuacct:/\n0::/\n",
        "0::/system.slice/docker-a.scope\n",
        "",
    ] {
        first.moves(up);
        machine.joins(tenant, ROOT, RUNTIME).unwrap_err();
        machine.joins(tenant, ROOT, &group("b")).unwrap_err();
        machine
            .joins(tenant, ROOT, "9:memory:/\n4:cpu,cpuacct:/\n0::/\n")
            .unwrap_err();
        machine.joins(tenant, ROOT, &group("a")).unwrap();
    }
    let other = First::start(&group("b"));
    machine.inject(&asks("b", "1GiB"), &other).unwrap();
    first.moves(&group("b"));
    let refused = machine.joins(tenant, ROOT, &group("b")).unwrap_err();
    assert!(refused.message.contains("container b"), "{refused}");
}

#[test]
fn a_process_moved_in_one_hierarchy_only_is_refused() {
    let mut machine = Machine::new();
    let first = First::start(&group("a"));
    let tenant = machine.inject(&asks("a", "1GiB"), &first).unwrap();
    let (own, other) = (group("a"), group("b"));
    for at in 0..own.lines().count() {
        let mut lines: Vec<&str> = own.lines().collect();
        lines[at] = other.lines().nth(at).unwrap();
        machine.joins(tenant, ROOT, &lines.join("\n")).unwrap_err();
    }
}

#[test]
fn a_container_in_a_container_is_a_tenant_of_its_own() {
    let mut machine = Machine::new();
    let outer = First::start(&group("a"));
    let nested = group("a").replace('\n', "/b\n");
    let inner = First::start(&nested);
    let outer_tenant = machine.inject(&asks("a", "1GiB"), &outer).unwrap();
    machine.joins(outer_tenant, ROOT, &nested).unwrap();
    let inner_tenant = machine.inject(&asks("b", "1GiB"), &inner).unwrap();
    machine.joins(inner_tenant, ROOT, &nested).unwrap();
    machine.joins(outer_tenant, ROOT, &group("a")).unwrap();
    machine.joins(outer_tenant, ROOT, &nested).unwrap_err();
    machine.joins(inner_tenant, ROOT, &group("a")).unwrap_err();
    // Once the inner container has ended, what is left of it is the outer one's.
    machine.node.container_ended(NOW, inner_tenant);
    machine.drain();
    machine.joins(outer_tenant, ROOT, &nested).unwrap();
}

#[test]
fn a_container_lives_as_long_as_its_init() {
    let mut machine = Machine::new();
    let first = First::start(&group("a"));
    let tenant = machine.inject(&asks("a", "1GiB"), &first).unwrap();
    machine.joins(tenant, ROOT, &group("a")).unwrap();
    assert_eq!(machine.names(), ["a"], "neither hook nor process keeps it");
    machine.node.tick(NOW);
    assert_eq!(machine.names(), ["a"]);
    drop(first);
    // Also where its end was not told.
    machine.node.tick(NOW);
    machine.drain();
    assert_eq!(
        (machine.names().len(), machine.gone.as_slice()),
        (0, &[tenant][..])
    );
}

#[test]
fn an_idle_container_outlives_daemons_and_its_end_between_two_is_seen() {
    let mut first_daemon = Machine::new();
    let first = First::start(&group("a"));
    first_daemon.inject(&asks("a", "1GiB"), &first).unwrap();
    let mut kept = first_daemon.made.pop().unwrap().1;
    for _ in 0..3 {
        let text = serde_json::to_string(&kept).unwrap();
        let mut next = Machine::with(&Settings::default(), true);
        let tenant = next
            .node
            .restore(NOW, &serde_json::from_str(&text).unwrap())
            .unwrap();
        next.node.recovered(NOW);
        next.node.forget_unclaimed(NOW);
        next.drain();
        assert_eq!(next.names(), ["a"]);
        next.joins(tenant, ROOT, RUNTIME).unwrap_err();
        kept = next.made.pop().unwrap().1;
    }
    drop(first);
    let mut last = Machine::with(&Settings::default(), true);
    last.node.restore(NOW, &kept).unwrap();
    last.node.recovered(NOW);
    last.node.forget_unclaimed(NOW);
    last.drain();
    assert!(last.names().is_empty());
}

#[test]
fn a_containers_pod_is_told_by_every_daemon_and_others_have_none() {
    let mut machine = Machine::new();
    let [a, b] = ["a", "b"].map(|id| First::start(&group(id)));
    let mut of_pod = asks("a", "1GiB");
    let label = |kind: &str, value: &str| (kind.to_owned(), value.to_owned());
    of_pod.labels = vec![
        label("namespace", "team"),
        label("image", "lab/x"),
        label("pod", "web-0"),
    ];
    machine.inject(&of_pod, &a).unwrap();
    machine.inject(&asks("b", "1GiB"), &b).unwrap();
    let told = PodRow {
        name: "a".to_owned(),
        namespace: "team".to_owned(),
        pod: "web-0".to_owned(),
        container: String::new(),
    };
    assert_eq!(machine.pods(), std::slice::from_ref(&told));
    let mut next = Machine::with(&Settings::default(), true);
    for (_, kept) in machine.made {
        next.node.restore(NOW, &kept).unwrap();
    }
    next.drain();
    assert_eq!(next.pods(), [told]);
}

#[test]
fn the_events_of_a_containers_beginning_and_end_name_its_pod() {
    let mut machine = Machine::new();
    let both = ["a", "b"].map(|id| First::start(&group(id)));
    let mut of_pod = asks("a", "1GiB");
    let label = |kind: &str, value: &str| (kind.to_owned(), value.to_owned());
    of_pod.labels = vec![label("namespace", "team"), label("pod", "web-0")];
    machine.inject(&of_pod, &both[0]).unwrap();
    machine.inject(&asks("b", "1GiB"), &both[1]).unwrap();
    drop(both);
    machine.node.tick(NOW);
    machine.drain();
    for kind in ["admitted", "gone"] {
        let of = |name: &str| {
            let mut all = machine.told.iter();
            let record = all.find(|one| one.kind == kind && one.tenant.as_deref() == Some(name));
            let record = record.unwrap();
            ["namespace", "pod", "container"].map(|fact| record.word_of(fact).map(str::to_owned))
        };
        let pod = [Some("team"), Some("web-0"), None].map(|word| word.map(str::to_owned));
        assert_eq!(of("a"), pod, "{kind}");
        assert_eq!(of("b"), [None, None, None], "{kind}");
    }
}

#[test]
fn what_does_not_fit_now_is_refused_with_the_numbers_and_leaves_nothing() {
    let mut machine = Machine::new();
    let [a, b, c] = ["a", "b", "c"].map(|id| First::start(&group(id)));
    let tenant = machine.inject(&asks("a", "36GiB"), &a).unwrap();
    let refused = machine.inject(&asks("b", "36GiB"), &b).unwrap_err();
    for word in ["does not wait", "36 GiB"] {
        assert!(refused.message.contains(word), "{refused}");
    }
    assert!(!refused.can_retry);
    let refused = machine.inject(&asks("b", "900GiB"), &b).unwrap_err();
    assert!(!refused.message.is_empty());
    assert_eq!(machine.names(), ["a"]);
    machine.inject(&asks("c", "1GiB"), &c).unwrap();
    machine.node.container_ended(NOW, tenant);
    machine.inject(&asks("b", "36GiB"), &b).unwrap();
}

#[test]
fn a_second_registration_and_a_shared_cgroup_are_refused() {
    let mut machine = Machine::new();
    let first = First::start(&group("a"));
    machine.inject(&asks("a", "1GiB"), &first).unwrap();
    let twice = machine.inject(&asks("b", "1GiB"), &first).unwrap_err();
    assert!(twice.message.contains("runs twice"), "{twice}");
    let same = First::start(&group("a"));
    let shared = machine.inject(&asks("b", "1GiB"), &same).unwrap_err();
    assert!(shared.message.contains("cgroup /docker/a"), "{shared}");
    assert_eq!(machine.names(), ["a"]);
}

#[test]
fn without_a_cgroup_the_socket_alone_counts_only_by_the_admins_word() {
    let first = First::start(RUNTIME);
    let mut machine = Machine::new();
    let refused = machine.inject(&asks("a", "1GiB"), &first).unwrap_err();
    assert!(refused.message.contains("no_cgroup"), "{refused}");
    let mut machine = Machine::configured("[containers]\nno_cgroup = \"socket\"\n");
    let tenant = machine.inject(&asks("a", "1GiB"), &first).unwrap();
    machine.joins(tenant, ALICE, &group("b")).unwrap();
}

#[test]
fn a_user_injects_own_containers_only_and_under_the_maxima() {
    let own = nix::unistd::geteuid().as_raw();
    let text = "[maxima]\nGPUSHARE_MEM_LIMIT = \"2GiB\"\n";
    let mut machine = Machine::configured(text);
    let first = First::start(&group("a"));
    let other = own + 1;
    let refused = machine
        .inject_as(Some(other), &asks("a", "1GiB"), &first)
        .unwrap_err();
    assert!(refused.message.contains("another user's"), "{refused}");
    let refused = machine
        .inject_as(Some(own), &asks("a", "3GiB"), &first)
        .unwrap_err();
    assert!(
        refused.message.contains("GPUSHARE_MEM_LIMIT=\"3GiB\""),
        "{refused}"
    );
    assert!(refused.message.contains("2GiB"), "{refused}");
    machine
        .inject_as(Some(own), &asks("a", "1GiB"), &first)
        .unwrap();
}

#[test]
fn a_container_is_a_users_by_that_users_part_of_the_cgroups() {
    // Its first process is a subuid's, in a user namespace that the daemon may not look at.
    let user = nix::unistd::geteuid().as_raw() + 1000;
    let manager = |user: u32| format!("/user.slice/user-{user}.slice/user@{user}.service");
    let scope = "user.slice/libpod-a.scope/container";
    let own = First::start(&format!("0::{}/{scope}\n", manager(user)));
    let mut machine = Machine::new();
    machine
        .inject_as(Some(user), &asks("a", "1GiB"), &own)
        .unwrap();
    for (hierarchy, path) in [
        ("", format!("{}/{scope}", manager(user + 1))),
        // That user made the rest of the path.
        (
            "",
            format!("{}{}/{scope}", manager(user + 1), manager(user)),
        ),
        ("", format!("/../..{}/{scope}", manager(user))),
        ("", format!("/user.slice/user-{user}.slice/session-1.scope")),
        ("", manager(user)),
        ("", format!("{}x/{scope}", manager(user))),
        ("name=systemd", format!("{}/{scope}", manager(user))),
    ] {
        let other = First::start(&format!("0:{hierarchy}:{path}\n"));
        let refused = machine
            .inject_as(Some(user), &asks("b", "1GiB"), &other)
            .unwrap_err();
        assert!(
            refused.message.contains("another user's"),
            "{path}: {refused}"
        );
    }
}

#[test]
fn rules_bound_the_containers_of_a_namespace() {
    let text = "[maxima]\nGPUSHARE_MEM_LIMIT = \"8GiB\"\n\
        [[containers.rules]]\nnamespace = \"small\"\n[containers.rules.maxima]\nGPUSHARE_MEM_LIMIT = \"1GiB\"\n";
    let mut machine = Machine::configured(text);
    let [a, b] = ["a", "b"].map(|id| First::start(&group(id)));
    let mut wanted = asks("a", "2GiB");
    wanted.labels = vec![("namespace".to_owned(), "small".to_owned())];
    let refused = machine.inject(&wanted, &a).unwrap_err();
    assert!(refused.message.contains("at most 1GiB"), "{refused}");
    wanted.environment.clear();
    machine.inject(&wanted, &a).unwrap();
    machine.inject(&asks("b", "2GiB"), &b).unwrap();
}

#[test]
fn a_rule_above_the_nodes_maximum_is_refused_when_it_is_read() {
    let text = "[maxima]\nGPUSHARE_MEM_LIMIT = \"8GiB\"\n\
        [[containers.rules]]\nimage = \"x*\"\n[containers.rules.maxima]\nGPUSHARE_MEM_LIMIT = \"9GiB\"\n";
    let refused = gpushared::config::read(text, Settings::default()).unwrap_err();
    assert!(
        refused.contains("9GiB") && refused.contains("8GiB"),
        "{refused}"
    );
    for text in [
        "[containers]\nno_cgroup = \"no\"\n",
        "[containers]\nunknown = 1\n",
        "[[containers.rules]]\n[containers.rules.maxima]\nGPUSHARE_MEM_LIMIT = \"1GiB\"\n",
    ] {
        assert!(
            gpushared::config::read(text, Settings::default()).is_err(),
            "{text}"
        );
    }
}

#[test]
fn what_cannot_be_enforced_is_reported_or_refused() {
    for linkage in [Linkage::Musl, Linkage::Static] {
        let first = First::start(&group("a"));
        let wanted = Injection {
            linkage,
            ..asks("a", "1GiB")
        };
        Machine::new().inject(&wanted, &first).unwrap();
        let text = "[containers]\nunenforceable = \"deny\"\n";
        let refused = Machine::configured(text)
            .inject(&wanted, &first)
            .unwrap_err();
        assert!(refused.message.contains("unenforceable"), "{refused}");
        Machine::configured(text)
            .inject(&asks("a", "1GiB"), &first)
            .unwrap();
    }
}

#[test]
fn bad_values_and_odd_ids_are_refused_by_name() {
    let mut machine = Machine::new();
    let first = First::start(&group("a"));
    let refused = machine.inject(&asks("a", "4 apples"), &first).unwrap_err();
    for word in ["GPUSHARE_MEM_LIMIT", "4 apples", "accepted"] {
        assert!(refused.message.contains(word), "{refused}");
    }
    for id in ["", "../a", "a/b", ".a", "a\nb"] {
        machine.inject(&asks(id, "1GiB"), &first).unwrap_err();
    }
    let mut odd = asks("a", "1GiB");
    odd.preload = vec!["/lib/x.so\n/lib/y.so".to_owned()];
    machine.inject(&odd, &first).unwrap_err();
    odd.preload = vec!["/".repeat(20_000)];
    machine.inject(&odd, &first).unwrap_err();
    assert!(machine.names().is_empty());
}

#[test]
fn an_id_that_is_no_tenants_name_or_is_taken_gets_one() {
    let mut machine = Machine::new();
    let long = "x".repeat(128);
    for id in ["a", "a+b", &long, "-"] {
        let first = First::start(&group(id));
        machine.inject(&asks(id, "1MiB"), &first).unwrap();
        std::mem::forget(first);
    }
    let first = First::start(&group("b"));
    machine.inject(&asks("a", "1MiB"), &first).unwrap();
    let names = machine.names();
    assert_eq!(names.len(), 5, "{names:?}");
    assert!(
        names
            .iter()
            .all(|name| name.len() <= 64 && !name.contains('+')),
        "{names:?}"
    );
}

#[test]
fn a_daemon_that_recovers_has_the_hook_try_again() {
    let mut machine = Machine::with(&Settings::default(), true);
    let first = First::start(&group("a"));
    let refused = machine.inject(&asks("a", "1GiB"), &first).unwrap_err();
    assert!(refused.can_retry, "{refused}");
    machine.node.recovered(NOW + Nanos::secs(2));
    machine.inject(&asks("a", "1GiB"), &first).unwrap();
}

#[test]
fn a_hook_is_answered_when_its_folder_is_made_and_before_all_else() {
    let mut machine = Machine::new();
    for id in ["a", "b"] {
        let first = First::start(&group(id));
        let from = machine.connection();
        machine.node.command_came(from, "/", None);
        let (asked, place) = (asks(id, "1GiB"), Groups::parse(RUNTIME));
        machine
            .node
            .inject(NOW, (from, 1), &asked, first.init(), &place);
        let effects: Vec<Effect> = std::iter::from_fn(|| machine.node.poll_effect()).collect();
        let at = |is: fn(&Effect) -> bool| effects.iter().position(is).unwrap();
        let listens = at(|effect| matches!(effect, Effect::Listen { .. }));
        let answers = at(|effect| matches!(effect, Effect::Command { .. }));
        assert_eq!(answers, listens + 1, "{effects:?}");
        assert!(answers < at(|effect| matches!(effect, Effect::Event { .. })));
        assert!(answers < at(|effect| matches!(effect, Effect::WatchContainer { .. })));
        // The second has the page that is made here.
        machine.node.prepare();
    }
}

#[test]
fn no_forged_place_is_taken_for_the_containers() {
    let forged = [
        "/",
        "/a",
        "/docker",
        "/docker/a",
        "/docker/ab",
        "/docker/a/b",
        "/docker/../a",
        "/docker//a",
        "/system.slice/docker-a.scope",
        "/system.slice/docker-a.scope/x",
        "/system.slice/docker-b.scope",
        "/../docker/a",
        "docker/a",
        "",
    ];
    let mut machine = Machine::new();
    let first = First::start(&group("a"));
    let tenant = machine.inject(&asks("a", "1GiB"), &first).unwrap();
    let inside = |path: &str, own: &str| path == own || path.starts_with(&format!("{own}/"));
    let (mut tries, mut accepted) = (0, 0);
    for memory in forged {
        for cpu in forged {
            for unified in forged {
                let table = format!("9:memory:{memory}\n4:cpu,cpuacct:{cpu}\n0::{unified}\n");
                let is_inside = inside(memory, "/docker/a")
                    && inside(cpu, "/docker/a")
                    && inside(unified, "/system.slice/docker-a.scope");
                let uid = [ROOT, ALICE, 65_534][tries % 3];
                assert_eq!(
                    machine.joins(tenant, uid, &table).is_ok(),
                    is_inside,
                    "{table}"
                );
                tries += 1;
                accepted += usize::from(is_inside);
            }
        }
    }
    assert_eq!((tries, accepted), (2744, 8));
}

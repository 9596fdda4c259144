//! Settings that only a daemon can enforce: parsed, refused without a daemon, compared.

use super::tests::read;
use super::*;

#[test]
fn what_takes_a_daemon_is_read_with_one_and_refused_by_name_without() {
    for (name, value) in [
        ("GPUSHARE_PRIORITY", "900"),
        ("GPUSHARE_ON_COLLISION", "priority,wait"),
        ("GPUSHARE_WAIT_TIMEOUT", "1500ms"),
        ("GPUSHARE_IDLE_AFTER", "2m"),
        ("GPUSHARE_PREEMPTIBLE", "kill"),
        ("GPUSHARE_PREEMPTIBLE", "swap"),
        ("GPUSHARE_ON_COLLISION", "swap"),
        ("GPUSHARE_OVERSUBSCRIBE", "swap"),
        ("CUDA_OVERSUBSCRIBE", "true"),
        ("GPUSHARE_SM_REQUEST", "30"),
    ] {
        let limits = read(&[(name, value)]).unwrap();
        let error = limits.without_daemon().unwrap_err();
        assert_eq!(
            (error.variable.as_str(), error.value.as_str()),
            (name, value)
        );
    }
    let kept = [
        ("GPUSHARE_SM_LIMIT", "30"),
        ("GPUSHARE_ON_COLLISION", "fail"),
        ("GPUSHARE_PREEMPTIBLE", "never"),
        ("GPUSHARE_OVERSUBSCRIBE", "off"),
    ];
    assert!(read(&kept).unwrap().without_daemon().is_ok());
}

#[test]
fn terms_are_read_in_their_units_and_tell_two_tenants_apart() {
    let limits = read(&[
        ("GPUSHARE_PRIORITY", "900"),
        ("GPUSHARE_ON_COLLISION", "priority,wait"),
        ("GPUSHARE_WAIT_TIMEOUT", "2m"),
    ])
    .unwrap();
    assert_eq!(limits.policy().priority, 900);
    assert_eq!(
        limits.policy().on_collision,
        [Resolver::Priority, Resolver::Wait]
    );
    assert_eq!(limits.policy().wait_timeout.as_secs(), 120);
    assert!(
        limits
            .to_string()
            .ends_with(" priority=900 on-collision=priority,wait wait-timeout=120000ms")
    );
    let spelt_out = read(&[
        ("GPUSHARE_PRIORITY", "500"),
        ("GPUSHARE_WAIT_TIMEOUT", "30000ms"),
    ])
    .unwrap();
    assert_eq!(spelt_out.to_string(), read(&[]).unwrap().to_string());
}

#[test]
fn a_gang_is_named_anywhere_and_tells_two_tenants_apart() {
    let limits = read(&[("GPUSHARE_GANG", "job-1_a.b")]).unwrap();
    assert_eq!(limits.policy().gang.as_deref(), Some("job-1_a.b"));
    assert!(limits.to_string().ends_with(" gang=job-1_a.b"));
    // Nothing depends on it where nothing is steered.
    assert!(limits.without_daemon().is_ok());
    assert_eq!(read(&[]).unwrap().policy().gang, None);
    assert!(Limits::reads("GPUSHARE_GANG") && !Limits::reads("GPUSHARE_GANG_0"));
}

#[test]
fn a_node_has_no_gang_of_all_its_tenants_and_no_most_of_one() {
    let job = || [("GPUSHARE_GANG".into(), "job".into())];
    let error = Limits::from_env_over([], job()).unwrap_err().to_string();
    for word in ["GPUSHARE_GANG", "job", "accepted: "] {
        assert!(error.contains(word), "{error}");
    }
    assert!(Maxima::read(job()).is_err());
}

#[test]
fn hamis_priority_ranks_a_tenant_that_says_no_other() {
    let priority = |set: &[(&str, &str)]| read(set).unwrap().policy().priority;
    assert_eq!(priority(&[("CUDA_TASK_PRIORITY", "0")]), 500);
    assert_eq!(priority(&[("CUDA_TASK_PRIORITY", "")]), 500);
    assert_eq!(priority(&[("CUDA_TASK_PRIORITY", "1")]), 250);
    for ours in ["500", "900"] {
        let both = [("CUDA_TASK_PRIORITY", "1"), ("GPUSHARE_PRIORITY", ours)];
        assert_eq!(priority(&both).to_string(), ours);
    }
    let low = read(&[("CUDA_TASK_PRIORITY", "1")]).unwrap();
    assert!(low.without_daemon().is_err(), "only a daemon can keep it");
}

#[test]
fn a_bad_alias_is_refused_even_where_ours_wins() {
    assert!(
        read(&[
            ("GPUSHARE_MEM_LIMIT", "1GiB"),
            ("CUDA_DEVICE_MEMORY_LIMIT", "10Gi")
        ])
        .is_err()
    );
}

#[test]
fn memory_moves_where_any_of_three_variables_says_swap() {
    let terms = |set: &[(&str, &str)]| {
        let limits = read(set).unwrap();
        let policy = limits.policy();
        (
            policy.oversubscribe,
            policy.preemptible,
            policy.on_collision.clone(),
        )
    };
    let (swap, wait) = (Resolver::Swap, Resolver::Wait);
    let moves =
        |resolvers: &[Resolver]| (Oversubscribe::Swap, Preemptible::Swap, resolvers.to_vec());
    assert_eq!(
        terms(&[("GPUSHARE_OVERSUBSCRIBE", "swap")]),
        moves(&[swap, wait])
    );
    assert_eq!(
        terms(&[("GPUSHARE_PREEMPTIBLE", "swap")]),
        moves(&[swap, wait])
    );
    assert_eq!(terms(&[("GPUSHARE_ON_COLLISION", "swap")]), moves(&[swap]));
    let stays = (Oversubscribe::Off, Preemptible::Never, vec![wait]);
    assert_eq!(terms(&[]), stays);
    assert_eq!(terms(&[("GPUSHARE_OVERSUBSCRIBE", "off")]), stays);
    // A tenant's own settings hold: nothing is put before its own resolvers.
    let said = [
        ("GPUSHARE_OVERSUBSCRIBE", "swap"),
        ("GPUSHARE_ON_COLLISION", "wait"),
        ("GPUSHARE_PREEMPTIBLE", "never"),
    ];
    let own = (Oversubscribe::Swap, Preemptible::Never, vec![wait]);
    assert_eq!(terms(&said), own);
    let others = [
        ("GPUSHARE_OVERSUBSCRIBE", "off"),
        ("GPUSHARE_ON_COLLISION", "swap,wait"),
    ];
    assert_eq!(
        terms(&others),
        (Oversubscribe::Off, Preemptible::Never, vec![swap, wait])
    );
}

#[test]
fn uvm_moves_memory_as_swap_does_by_its_own_name() {
    let uvm = ("GPUSHARE_OVERSUBSCRIBE", "uvm");
    let limits = read(&[uvm, ("GPUSHARE_ON_COLLISION", "swap")]).unwrap();
    let policy = limits.policy();
    assert_eq!(policy.oversubscribe, Oversubscribe::Uvm);
    assert_eq!(policy.preemptible, Preemptible::Swap);
    assert!(policy.refuse_moves("no host memory").is_none());
    let error = policy.refuse_managed("the device cannot").unwrap();
    let named = (error.variable.as_str(), error.value.as_str());
    assert_eq!(named, uvm);
    assert!(error.accepted.contains("off or swap"), "{error}");
    assert!(policy.to_string().contains(" oversubscribe=uvm"));
    let swap = read(&[("GPUSHARE_OVERSUBSCRIBE", "swap")]).unwrap();
    assert!(swap.policy().refuse_managed("the device cannot").is_none());
}

#[test]
fn under_uvm_a_program_sees_a_limit_above_the_device() {
    let seen = |how| {
        let limit = ("GPUSHARE_MEM_LIMIT", "24GiB");
        let limits = read(&[limit, ("GPUSHARE_OVERSUBSCRIBE", how)]).unwrap();
        let on = limits.for_device(0, &[1; 16], 16 << 30).unwrap();
        (
            on.view_total >> 30,
            on.request,
            on.limit.map(|limit| limit >> 30),
        )
    };
    assert_eq!(seen("uvm"), (24, 0, Some(24)));
    assert_eq!(seen("swap"), (16, 0, Some(24)));
}

#[test]
fn memory_that_stays_is_no_victim_of_swap() {
    let set = [
        ("GPUSHARE_OVERSUBSCRIBE", "off"),
        ("GPUSHARE_PREEMPTIBLE", "swap"),
    ];
    let error = read(&set).unwrap_err();
    assert_eq!(error.variable, "GPUSHARE_PREEMPTIBLE");
    assert!(error.accepted.contains("never or kill"), "{error}");
}

#[test]
fn swap_is_refused_in_the_name_of_the_variable_that_asked() {
    for (name, value) in [
        ("GPUSHARE_OVERSUBSCRIBE", "swap"),
        ("GPUSHARE_ON_COLLISION", "swap,wait"),
        ("GPUSHARE_PREEMPTIBLE", "swap"),
        ("CUDA_OVERSUBSCRIBE", "1"),
    ] {
        let limits = read(&[(name, value)]).unwrap();
        let error = limits.policy().refuse_moves("there is no host memory");
        let error = error.unwrap();
        assert_eq!(
            (error.variable.as_str(), error.value.as_str()),
            (name, value)
        );
    }
    assert!(read(&[]).unwrap().policy().refuse_moves("none").is_none());
}

#[test]
fn under_swap_a_request_that_is_not_set_is_nothing() {
    let request = |set: &[(&str, &str)]| {
        let limits = read(set).unwrap();
        let on = limits.for_device(0, &[1; 16], 16 << 30).unwrap();
        (
            on.request >> 30,
            limits.implied(0, &[1; 16], 16 << 30).is_some(),
        )
    };
    let swap = ("GPUSHARE_OVERSUBSCRIBE", "swap");
    let limit = ("GPUSHARE_MEM_LIMIT", "4GiB");
    assert_eq!(request(&[limit]), (4, false));
    assert_eq!(request(&[limit, swap]), (0, false));
    assert_eq!(
        request(&[limit, swap, ("GPUSHARE_MEM_REQUEST", "2GiB")]),
        (2, false)
    );
    let half = ("GPUSHARE_MEM_LIMIT", "50%");
    assert_eq!(request(&[half]), (8, true));
    assert_eq!(request(&[half, swap]), (0, false));
}

#[test]
fn a_span_has_one_unit_up_to_weeks_and_is_at_most_a_year() {
    let second = std::time::Duration::from_secs(1);
    let day = 24 * 3600 * second;
    for (text, span) in [
        ("500ms", second / 2),
        ("30s", 30 * second),
        ("5m", 300 * second),
        ("2h", 7200 * second),
        ("7d", 7 * day),
        ("2w", 14 * day),
        ("365d", 365 * day),
    ] {
        assert_eq!(crate::limits::span(text), Some(span), "{text}");
    }
    for text in ["366d", "53w", "1.5d", "d", "1y", "1D", "0w", "1d2h"] {
        assert_eq!(span(text), None, "{text}");
    }
}

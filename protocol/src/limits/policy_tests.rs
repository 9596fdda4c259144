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

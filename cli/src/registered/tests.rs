use super::*;
use crate::args::Amounts;

fn refused(pairs: &[(&str, &str)], by_mps: bool) -> Option<String> {
    let pairs = pairs.iter();
    let environment = pairs.map(|(name, value)| (name.into(), value.into()));
    variable_of_tenant(&environment.collect(), by_mps).map(|(name, _)| name)
}

#[test]
fn a_variable_that_is_the_whole_tenants_is_found_in_every_spelling() {
    for (name, value) in [
        ("GPUSHARE_SM_LIMIT", "10"),
        ("GPUSHARE_SM_LIMIT_0", "10"),
        ("GPUSHARE_SM_REQUEST", "10"),
        ("GPUSHARE_MEM_REQUEST", "1GiB"),
        ("GPUSHARE_PRIORITY", "500"),
        ("GPUSHARE_ON_COLLISION", "fail"),
        ("GPUSHARE_GANG", "job"),
        ("GPUSHARE_IDLE_END", "off"),
        ("CUDA_DEVICE_SM_LIMIT_0", "30"),
        ("CUDA_TASK_PRIORITY", "1"),
        ("CUDA_OVERSUBSCRIBE", "true"),
        ("NVIDIA_GPU_MEMORY_REQUEST", "1024"),
    ] {
        let all = [
            ("CUDA_DEVICE_MEMORY_LIMIT", "1g"),
            ("PATH", "/bin"),
            (name, value),
        ];
        assert_eq!(refused(&all, false).as_deref(), Some(name));
    }
}

#[test]
fn a_variable_that_a_process_keeps_or_that_says_none_is_left() {
    let kept = [
        ("GPUSHARE_MEM_LIMIT", "1GiB"),
        ("GPUSHARE_MEM_LIMIT_0", "1GiB"),
        ("GPUSHARE_MEM_VIEW", "limit"),
        ("GPUSHARE_SOCKET", "/run/x"),
        ("GPUSHARE_TENANT", "outer"),
        ("GPUSHARE_LOG", "2"),
        ("CUDA_DEVICE_MEMORY_LIMIT_0", "1g"),
        ("NVIDIA_GPU_MEMORY_LIMIT", "1024"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G"),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "30"),
        ("CUDA_DEVICE_SM_LIMIT", "100"),
        ("CUDA_TASK_PRIORITY", "0"),
        ("CUDA_OVERSUBSCRIBE", "false"),
        ("NVIDIA_GPU_MEMORY_REQUEST", ""),
    ];
    assert_eq!(refused(&kept, false), None);
}

#[test]
fn a_cap_inside_a_tenant_is_kept_for_a_client_of_mps_only() {
    let share = Share {
        amounts: Amounts {
            sm_limit: vec!["30".to_owned()],
            ..Amounts::default()
        },
        ..Share::default()
    };
    assert_eq!(flag_of_tenant(&share, false), Some(("--sm-limit", "30")));
    assert_eq!(flag_of_tenant(&share, true), None);
    for cap in ["GPUSHARE_SM_LIMIT", "CUDA_DEVICE_SM_LIMIT"] {
        assert_eq!(refused(&[(cap, "30")], false).as_deref(), Some(cap));
        assert_eq!(refused(&[(cap, "30")], true), None);
    }
    let request = [("GPUSHARE_SM_REQUEST", "30")];
    assert!(refused(&request, true).is_some());
}

#[test]
fn a_shell_whose_tenant_has_ended_is_told_from_one_that_lives() {
    let dir = tempfile::tempdir().unwrap();
    let told = |folder: &Path, name: Option<&str>| {
        let environment: Environment = [
            (SOCKET.into(), folder.as_os_str().to_owned()),
            (TENANT.into(), "of-this-run".into()),
        ]
        .into();
        ended_outer(&environment, name.map(OsString::from))
    };
    assert_eq!(told(dir.path(), Some("outer")), None);
    // By the name that the shell has, or by the folder's: not by that of a `run` in it.
    for name in [Some("outer"), None] {
        let ended = told(&dir.path().join("sockets/outer"), name).unwrap();
        assert!(ended.starts_with("tenant outer, in which"), "{ended}");
        assert!(ended.contains("unset GPUSHARE_SOCKET"), "{ended}");
    }
    assert_eq!(ended_outer(&Environment::new(), None), None);
}

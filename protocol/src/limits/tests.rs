//! Tables over whole environments: precedence, refused values, equivalent spellings.

use super::*;
use crate::units::{GIB, MIB};
use proptest::prelude::*;

const UUID: [u8; 16] = [
    0x89, 0x32, 0xf9, 0x37, 0xd7, 0x2c, 0x41, 0x06, 0xc1, 0x2f, 0x20, 0xbd, 0x9f, 0xae, 0xd9, 0xf6,
];
const SUFFIX: &str = "GPU_8932f937_d72c_4106_c12f_20bd9faed9f6";
const DASHED: &str = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";

pub(super) fn read(environment: &[(&str, &str)]) -> Result<Limits, LimitError> {
    Limits::from_env(
        environment
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    )
}

/// Limit, request and view of device 0 with 16 GiB and [`UUID`].
fn on_device(environment: &[(&str, &str)]) -> (Option<u64>, u64, u64) {
    let limits = read(environment).unwrap_or_else(|error| panic!("{error}"));
    let device = limits
        .for_device(0, &UUID, 16 * GIB)
        .unwrap_or_else(|error| panic!("{error}"));
    (device.limit, device.request, device.view_total)
}

#[test]
fn an_empty_environment_leaves_the_device_as_it_is() {
    assert_eq!(on_device(&[]), (None, 0, 16 * GIB));
    assert_eq!(
        on_device(&[
            ("PATH", "/bin"),
            ("GPUSHARE_LOG", "debug"),
            ("GPUSHAREX", "1")
        ]),
        (None, 0, 16 * GIB)
    );
    assert!(!read(&[]).unwrap().any());
}

#[test]
fn limit_request_and_view_follow_from_each_other() {
    let (limit, request, view) = (
        "GPUSHARE_MEM_LIMIT",
        "GPUSHARE_MEM_REQUEST",
        "GPUSHARE_MEM_VIEW",
    );
    for (environment, expected) in [
        (vec![(limit, "4GiB")], (Some(4 * GIB), 4 * GIB, 4 * GIB)),
        (vec![(limit, "50%")], (Some(8 * GIB), 8 * GIB, 8 * GIB)),
        (vec![(limit, "32GiB")], (Some(32 * GIB), 16 * GIB, 16 * GIB)),
        (vec![(request, "2GiB")], (None, 2 * GIB, 16 * GIB)),
        (
            vec![(request, "2GiB"), (limit, "4GiB")],
            (Some(4 * GIB), 2 * GIB, 4 * GIB),
        ),
        (
            vec![(request, "2GiB"), (limit, "4GiB"), (view, "request")],
            (Some(4 * GIB), 2 * GIB, 2 * GIB),
        ),
        (
            vec![(limit, "4GiB"), (view, "request")],
            (Some(4 * GIB), 4 * GIB, 4 * GIB),
        ),
        (
            vec![(limit, "4GiB"), (view, "limit")],
            (Some(4 * GIB), 4 * GIB, 4 * GIB),
        ),
        (
            vec![("GPUSHARE_MEM_REQUEST_1", "2GiB"), (view, "request")],
            (None, 0, 16 * GIB),
        ),
    ] {
        assert_eq!(on_device(&environment), expected, "{environment:?}");
    }
}

#[test]
fn the_uuid_wins_over_the_ordinal_and_that_over_the_plain_name() {
    let by_uuid = format!("GPUSHARE_MEM_LIMIT_{SUFFIX}");
    let all = ("GPUSHARE_MEM_LIMIT", "1GiB");
    let zero = ("GPUSHARE_MEM_LIMIT_0", "2GiB");
    let one = ("GPUSHARE_MEM_LIMIT_1", "3GiB");
    assert_eq!(
        on_device(&[all, zero, one, (&by_uuid, "5GiB")]).0,
        Some(5 * GIB)
    );
    assert_eq!(on_device(&[all, zero, one]).0, Some(2 * GIB));
    assert_eq!(on_device(&[all, one]).0, Some(GIB));
    assert_eq!(on_device(&[one]).0, None);
    let other = read(&[(&by_uuid, "5GiB")])
        .unwrap()
        .for_device(0, &[7; 16], 16 * GIB)
        .unwrap();
    assert_eq!(other.limit, None);
}

#[test]
fn aliases_are_read_in_their_owners_grammar() {
    let mps = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
    for (name, value, limit) in [
        ("CUDA_DEVICE_MEMORY_LIMIT", "4g", Some(4 * GIB)),
        ("CUDA_DEVICE_MEMORY_LIMIT_0", "512m", Some(512 * MIB)),
        ("CUDA_DEVICE_MEMORY_LIMIT_1", "512m", None),
        ("CUDA_DEVICE_MEMORY_LIMIT", "0", None),
        ("CUDA_DEVICE_MEMORY_LIMIT", "", None),
        ("CUDA_DEVICE_MEMORY_SHARED_CACHE", "/tmp/x", None),
        ("NVIDIA_GPU_MEMORY_LIMIT", "4096", Some(4 * GIB)),
        ("NVIDIA_GPU_MEMORY_LIMIT", "", None),
        (mps, "0=4G,1=512M", Some(4 * GIB)),
        (mps, "1=512M", None),
        (mps, "", None),
        (mps, "0=0", None),
        (mps, &format!("{DASHED}=1GB"), Some(GIB)),
    ] {
        assert_eq!(on_device(&[(name, value)]).0, limit, "{name}={value}");
    }
    assert_eq!(
        on_device(&[("NVIDIA_GPU_MEMORY_REQUEST", "1024")]),
        (None, GIB, 16 * GIB)
    );
}

#[test]
fn ours_win_over_aliases_per_device_and_as_a_block() {
    let hami = ("CUDA_DEVICE_MEMORY_LIMIT", "8g");
    let toolkit = ("NVIDIA_GPU_MEMORY_REQUEST", "8192");
    assert_eq!(
        on_device(&[hami, ("GPUSHARE_MEM_LIMIT", "1GiB")]).0,
        Some(GIB)
    );
    assert_eq!(
        on_device(&[hami, ("GPUSHARE_MEM_LIMIT_1", "1GiB")]).0,
        Some(8 * GIB)
    );
    assert_eq!(
        on_device(&[hami, ("NVIDIA_GPU_MEMORY_LIMIT", "1024")]).0,
        Some(8 * GIB)
    );
    assert_eq!(
        on_device(&[toolkit, ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G")]),
        (None, 8 * GIB, 16 * GIB)
    );
    assert_eq!(
        on_device(&[toolkit, ("GPUSHARE_MEM_LIMIT", "1GiB")]),
        (Some(GIB), GIB, GIB)
    );
}

/// Variable, value, and a word the message must contain.
const REFUSED: [(&str, &str, &str); 71] = [
    ("GPUSHARE_MEM_LIMIT", "", "not understood"),
    ("GPUSHARE_MEM_LIMIT", "0", "zero"),
    ("GPUSHARE_MEM_LIMIT", "4gb", "512MiB"),
    ("GPUSHARE_MEM_LIMIT", "50", "did you mean 50% or 50GiB?"),
    ("GPUSHARE_MEM_LIMIT", "4096", "did you mean 4096MiB?"),
    ("GPUSHARE_MEM_LIMIT_0", "512KiB", "at least 1MiB"),
    ("CUDA_DEVICE_MEMORY_LIMIT", "50", "at least 1MiB"),
    ("GPUSHARE_PRIORTY", "900", "accepted: GPUSHARE_PRIORITY"),
    ("GPUSHARE_TENNANT", "a", "accepted: GPUSHARE_TENANT"),
    ("GPUSHARE_", "1", "no such variable"),
    ("GPUSHARE_FAVOURITE_COLOUR", "red", "GPUSHARE_WAIT_TIMEOUT"),
    (
        "NVIDIA_GPU_MEMORY_LIMITS",
        "4096",
        "NVIDIA_GPU_MEMORY_LIMIT",
    ),
    (
        "NVIDIA_GPU_MEMORY_REQUESTS",
        "1",
        "NVIDIA_GPU_MEMORY_REQUEST",
    ),
    ("CUDA_TASK_PRIORITY", "2", "0 (high"),
    ("GPUSHARE_MEM_LIMIT", "-1", "not understood"),
    ("GPUSHARE_MEM_LIMIT", "101%", "too large"),
    ("GPUSHARE_MEM_LIMIT_0", "x", "not understood"),
    ("GPUSHARE_MEM_REQUEST", "0GiB", "zero"),
    ("GPUSHARE_MEM_VIEW", "device", "limit or request"),
    ("GPUSHARE_MEM_VIEW", "", "limit or request"),
    ("GPUSHARE_MEM_VIEW_0", "limit", "no such variable"),
    ("GPUSHARE_MEM_LIMT", "4GiB", "no such variable"),
    ("GPUSHARE_MEM_LIMIT_16", "4GiB", "no such variable"),
    ("GPUSHARE_MEM_LIMIT_00", "4GiB", "no such variable"),
    ("GPUSHARE_MEM_LIMIT_", "4GiB", "no such variable"),
    (
        "GPUSHARE_MEM_LIMIT_GPU_8932f937",
        "4GiB",
        "no such variable",
    ),
    ("GPUSHARE_SM_LIMITS", "50", "no such variable"),
    ("GPUSHARE_SM_LIMIT", "0", "1 to 100"),
    ("GPUSHARE_SM_LIMIT", "0.9", "1 to 100"),
    ("GPUSHARE_SM_LIMIT", "100.1", "1 to 100"),
    ("GPUSHARE_SM_LIMIT_0", "12.25", "at most one decimal"),
    ("GPUSHARE_SM_LIMIT", "all", "percentage"),
    ("GPUSHARE_SM_LIMIT", "", "percentage"),
    ("GPUSHARE_SM_LIMIT", "+50", "percentage"),
    ("GPUSHARE_SM_LIMIT", "30 %", "percentage"),
    ("GPUSHARE_SM_REQUEST", "101", "1 to 100"),
    ("GPUSHARE_SM_REQUEST_GPU", "50", "GPUSHARE_SM_REQUEST"),
    ("GPUSHARE_PRIORITY", "1001", "0 to 1000"),
    ("GPUSHARE_PRIORITY", "high", "not understood"),
    ("GPUSHARE_ON_COLLISION", "wait,swap", "ever tried"),
    ("GPUSHARE_ON_COLLISION", "swap,swap", "twice"),
    ("GPUSHARE_ON_COLLISION", "wait,priority", "ever tried"),
    ("GPUSHARE_ON_COLLISION", "priority,priority", "twice"),
    ("GPUSHARE_ON_COLLISION", "", "not understood"),
    ("GPUSHARE_WAIT_TIMEOUT", "30", "span"),
    ("GPUSHARE_WAIT_TIMEOUT", "0s", "span"),
    ("GPUSHARE_IDLE_AFTER", "9000h", "a year"),
    ("GPUSHARE_PREEMPTIBLE", "maybe", "never, swap or kill"),
    ("GPUSHARE_GANG", "", "1 to 64 letters"),
    ("GPUSHARE_GANG", "a/b", "1 to 64 letters"),
    ("GPUSHARE_GANG", ".job", "not beginning with a dot"),
    ("GPUSHARE_GANG", "a job", "no name of a gang"),
    ("GPUSHARE_OVERSUBSCRIBE", "managed", "off, swap or uvm"),
    ("GPUSHARE_OVERSUBSCRIBE", "yes", "off, swap or uvm"),
    ("GPUSHARE_SOCKET", "gpushare.sock", "folder"),
    ("GPUSHARE_DISABLE", "yes", "1 or 0"),
    ("CUDA_DEVICE_MEMORY_LIMIT", "10Gi", "4g"),
    ("CUDA_DEVICE_MEMORY_LIMIT", "0.5g", "4g"),
    ("CUDA_DEVICE_MEMORY_LIMIT_16", "4g", "no such variable"),
    ("CUDA_DEVICE_SM_LIMIT", "101", "no cap"),
    ("CUDA_DEVICE_SM_LIMIT", "50%", "percentage"),
    ("CUDA_DEVICE_SM_LIMIT_0", "half", "percentage"),
    ("CUDA_DEVICE_SM_LIMIT_16", "50", "no such variable"),
    ("CUDA_OVERSUBSCRIBE", "maybe", "switch"),
    ("NVIDIA_GPU_MEMORY_LIMIT", "4GiB", "MiB"),
    ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "4G", "not understood"),
    ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=4G,1", "\"1\""),
    ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=4G,0=2G", "twice"),
    (
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
        "0=4",
        "did you mean 0=4G?",
    ),
    ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=4G,1=512K", "1MiB"),
    (
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
        "0=4096",
        "did you mean 0=4096M?",
    ),
];

#[test]
fn a_bad_value_is_refused_on_one_line_with_the_accepted_form() {
    for (name, value, word) in REFUSED {
        let error = read(
            &[("GPUSHARE_MEM_LIMIT_3", "1GiB"), (name, value)]
                [usize::from(word.starts_with("GPU"))..],
        )
        .expect_err(&format!("{name}={value}"));
        let line = error.to_string();
        assert_eq!(
            (error.variable.as_str(), error.value.as_str()),
            (name, value)
        );
        assert!(
            line.starts_with(&format!("{name}={value:?} is refused: "))
                && line.contains("; accepted: "),
            "{line}"
        );
        assert!(
            line.contains(word) && !line.contains('\n'),
            "{line} has no {word}"
        );
    }
}

#[test]
fn what_this_release_does_anyway_may_be_asked_for() {
    for (name, value) in [
        ("GPUSHARE_SM_LIMIT", "100"),
        ("GPUSHARE_ON_COLLISION", "fail"),
        ("GPUSHARE_PREEMPTIBLE", "never"),
        ("GPUSHARE_OVERSUBSCRIBE", "off"),
        ("GPUSHARE_DISABLE", "0"),
        ("CUDA_DEVICE_SM_LIMIT", "0"),
        ("CUDA_DEVICE_SM_LIMIT", "100"),
        ("CUDA_DEVICE_SM_LIMIT", ""),
        ("CUDA_OVERSUBSCRIBE", "false"),
    ] {
        assert_eq!(
            on_device(&[(name, value)]),
            (None, 0, 16 * GIB),
            "{name}={value}"
        );
    }
    assert!(
        read(&[
            ("CUDA_OVERSUBSCRIBE", "true"),
            ("GPUSHARE_OVERSUBSCRIBE", "off")
        ])
        .is_ok(),
        "ours wins"
    );
}

#[test]
fn plumbing_and_what_is_not_ours_is_left_alone() {
    for name in [
        "GPUSHARE_TENANT",
        "GPUSHARE_IN_FILES",
        "GPUSHARE_LOG",
        "GPUSHARE_DAEMON_CONFIG",
        "GPUTEST_BUILT",
        "GPUSHARED",
        "NVIDIA_GPU_MEMORY",
    ] {
        assert!(read(&[(name, "anything")]).is_ok(), "{name}");
    }
    assert!(read(&[("GPUSHARE_MEM_LIMIT", "1MiB")]).is_ok(), "the least");
    let small = [
        ("GPUSHARE_MEM_LIMIT", "1GiB"),
        ("GPUSHARE_MEM_REQUEST", "1"),
    ];
    assert!(read(&small).is_ok(), "a small guarantee harms nothing");
}

#[test]
fn a_request_above_its_limit_is_refused_as_early_as_it_can_be_told() {
    let both = |limit, request| {
        [
            ("GPUSHARE_MEM_LIMIT", limit),
            ("GPUSHARE_MEM_REQUEST", request),
        ]
    };
    for (limit, request) in [("1GiB", "2GiB"), ("10%", "20%"), ("1048576", "1048577")] {
        let error = read(&both(limit, request)).unwrap_err();
        assert_eq!(error.variable, "GPUSHARE_MEM_REQUEST");
        assert!(
            error
                .to_string()
                .contains(&format!("GPUSHARE_MEM_LIMIT={limit}")),
            "{error}"
        );
    }
    for (limit, request) in [
        ("2GiB", "2GiB"),
        ("20%", "20%"),
        ("50%", "8GiB"),
        ("8GiB", "50%"),
    ] {
        assert!(on_device(&both(limit, request)).0.is_some());
    }
    let mixed = read(&both("50%", "9GiB")).unwrap();
    assert_eq!(
        mixed.for_device(0, &UUID, 16 * GIB).unwrap_err().variable,
        "GPUSHARE_MEM_REQUEST"
    );
    assert!(mixed.for_device(0, &UUID, 18 * GIB).is_ok());
    assert!(
        read(&[
            ("GPUSHARE_MEM_LIMIT", "4GiB"),
            ("GPUSHARE_MEM_REQUEST_1", "5GiB")
        ])
        .is_err()
    );
    assert!(
        read(&[
            ("GPUSHARE_MEM_LIMIT_1", "4GiB"),
            ("GPUSHARE_MEM_REQUEST_0", "5GiB")
        ])
        .is_ok()
    );
}

#[test]
fn a_request_above_the_device_is_refused_and_a_limit_above_it_is_not() {
    let limits = read(&[("GPUSHARE_MEM_REQUEST", "17GiB")]).unwrap();
    let error = limits.for_device(0, &UUID, 16 * GIB).unwrap_err();
    assert!(error.to_string().contains("16GiB"), "{error}");
    assert_eq!(on_device(&[("GPUSHARE_MEM_LIMIT", "17GiB")]).2, 16 * GIB);
}

#[test]
fn the_first_of_equal_names_counts_two_for_a_device_are_refused() {
    assert_eq!(
        on_device(&[
            ("GPUSHARE_MEM_LIMIT", "1GiB"),
            ("GPUSHARE_MEM_LIMIT", "2GiB")
        ])
        .0,
        Some(GIB)
    );
    let [upper, lower] = [SUFFIX.replace('f', "F"), SUFFIX.to_owned()]
        .map(|name| format!("GPUSHARE_MEM_LIMIT_{name}"));
    assert!(
        read(&[(&upper, "1GiB"), (&lower, "1GiB")])
            .unwrap_err()
            .to_string()
            .contains("same device")
    );
}

#[test]
fn only_equal_limits_print_the_same_in_any_spelling() {
    let print = |environment: &[(&str, &str)]| read(environment).unwrap().to_string();
    let plain = print(&[("GPUSHARE_MEM_LIMIT", "4GiB")]);
    assert_eq!(plain, print(&[("GPUSHARE_MEM_LIMIT", "4294967296")]));
    assert_eq!(plain, print(&[("CUDA_DEVICE_MEMORY_LIMIT", "4g")]));
    assert_eq!(
        plain,
        print(&[
            ("GPUSHARE_MEM_LIMIT", "4Gi"),
            ("CUDA_DEVICE_MEMORY_LIMIT", "8g")
        ])
    );
    assert_eq!(
        plain,
        print(&[
            ("GPUSHARE_MEM_LIMIT", "4GiB"),
            ("GPUSHARE_MEM_VIEW", "limit")
        ])
    );
    for other in [
        vec![],
        vec![("GPUSHARE_MEM_LIMIT", "4GB")],
        vec![("GPUSHARE_MEM_LIMIT_0", "4GiB")],
        vec![("GPUSHARE_MEM_REQUEST", "4GiB")],
        vec![
            ("GPUSHARE_MEM_LIMIT", "4GiB"),
            ("GPUSHARE_MEM_VIEW", "request"),
        ],
        vec![("GPUSHARE_MEM_LIMIT", "4GiB"), ("GPUSHARE_DISABLE", "1")],
        vec![
            ("GPUSHARE_MEM_LIMIT", "4GiB"),
            ("GPUSHARE_MEM_LIMIT_1", "2GiB"),
        ],
    ] {
        assert_ne!(plain, print(&other), "{other:?}");
    }
}

#[test]
fn the_switch_is_read() {
    assert!(read(&[("GPUSHARE_DISABLE", "1")]).unwrap().disabled());
    assert!(!read(&[("GPUSHARE_DISABLE", "")]).unwrap().disabled());
}

#[cfg(unix)]
#[test]
fn a_value_that_is_no_text_is_refused_and_shown() {
    use std::os::unix::ffi::OsStringExt;
    let environment = [(
        "GPUSHARE_MEM_LIMIT".into(),
        OsString::from_vec(vec![b'4', 0xff, b'\n']),
    )];
    let line = Limits::from_env(environment).unwrap_err().to_string();
    assert!(line.contains("\"4\u{fffd}\\n\""), "{line}");
}

proptest! {
    #[test]
    fn a_limit_printed_by_its_size_reads_back_to_itself(bytes in 1..=u64::MAX, ordinal in 0..16_u32) {
        let name = format!("GPUSHARE_MEM_LIMIT_{ordinal}");
        let text = crate::units::Bytes(bytes).to_string();
        let device = read(&[(&name, &text)]).unwrap().for_device(ordinal, &UUID, 16 * GIB).unwrap();
        prop_assert_eq!(device.limit, Some(bytes));
        prop_assert!(device.request <= 16 * GIB && device.view_total <= 16 * GIB);
    }

    #[test]
    fn any_environment_is_read_without_panic(
        names in proptest::collection::vec((0..8_usize, ".{0,12}", ".{0,16}"), 0..6)
    ) {
        let bases = ["GPUSHARE_MEM_LIMIT", "GPUSHARE_MEM_REQUEST", "GPUSHARE_MEM_", "GPUSHARE_", "CUDA_DEVICE_MEMORY_LIMIT",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "NVIDIA_GPU_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT"];
        let environment = names.into_iter().map(|(base, rest, value)| (format!("{}{rest}", bases[base]).into(), value.into()));
        if let Ok(limits) = Limits::from_env(environment) {
            let _ = (limits.to_string(), limits.for_device(0, &UUID, 16 * GIB));
        }
    }
}

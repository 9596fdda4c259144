//! What a refused amount is told: what was perhaps meant, and whether it is out of range.

use super::tests::read;

#[test]
fn a_refused_amount_is_told_what_was_perhaps_meant() {
    for (name, value, said) in [
        ("GPUSHARE_MEM_LIMIT", "4gib", "did you mean 4GiB?"),
        ("GPUSHARE_MEM_LIMIT", "1,5 GiB", "did you mean 1.5GiB?"),
        (
            "GPUSHARE_MEM_LIMIT",
            "4 gigs",
            "not understood as a size; accepted",
        ),
        ("GPUSHARE_MEM_LIMIT", "150%", "the device is 100%"),
    ] {
        let refused = read(&[(name, value)]).unwrap_err().to_string();
        assert!(refused.contains(said), "{refused}");
    }
}

#[test]
fn a_number_beyond_its_range_is_told_from_what_is_no_number() {
    for (name, value, said) in [
        ("GPUSHARE_SM_LIMIT", "101", "out of range"),
        ("GPUSHARE_SM_LIMIT", "0%", "out of range"),
        ("GPUSHARE_SM_LIMIT", "half", "not understood"),
        ("GPUSHARE_PRIORITY", "1001", "out of range"),
        ("GPUSHARE_PRIORITY", "high", "not understood"),
    ] {
        let refused = read(&[(name, value)]).unwrap_err().to_string();
        assert!(refused.contains(said), "{refused}");
    }
}

#[test]
fn an_alias_is_told_what_its_own_grammar_accepts() {
    let said = |name: &str, value: &str| read(&[(name, value)]).unwrap_err().to_string();
    for (name, value) in [
        ("CUDA_DEVICE_MEMORY_LIMIT", "4GiB"),
        ("NVIDIA_GPU_MEMORY_LIMIT", "4g"),
    ] {
        let refused = said(name, value);
        assert!(!refused.contains("did you mean"), "{refused}");
    }
    for (value, meant) in [("4", "mean 4g?"), ("4096", "mean 4096m?")] {
        let refused = said("CUDA_DEVICE_MEMORY_LIMIT", value);
        assert!(refused.contains(meant), "{refused}");
        let taken = meant.trim_start_matches("mean ").trim_end_matches('?');
        read(&[("CUDA_DEVICE_MEMORY_LIMIT", taken)]).unwrap();
    }
}

#[test]
fn an_unknown_name_is_told_the_one_that_it_is_near_to() {
    let said = |name: &str| read(&[(name, "1")]).unwrap_err().to_string();
    for (name, meant) in [
        ("GPUSHARE_NAME", "GPUSHARE_TENANT"),
        ("GPUSHARE_CONFIG", "GPUSHARE_DAEMON_CONFIG"),
        ("GPUSHARE_DAEMON", "GPUSHARE_DAEMON_CONFIG"),
        ("GPUSHARE_PRIORTY", "GPUSHARE_PRIORITY"),
        ("GPUSHARE_MEM_LIMT", "GPUSHARE_MEM_LIMIT"),
    ] {
        let refused = said(name);
        let words = format!("accepted: {meant}, if that was meant");
        assert!(refused.contains(&words), "{refused}");
    }
    for name in ["GPUSHARE_GPU", "GPUSHARE_LIMIT", "GPUSHARE_MEM"] {
        let refused = said(name);
        assert!(!refused.contains("if that was meant"), "{refused}");
    }
}

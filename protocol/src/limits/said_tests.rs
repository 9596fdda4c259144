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

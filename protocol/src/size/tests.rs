//! Every accepted and refused form of a size, and round trips.

use super::*;
use proptest::prelude::*;

#[test]
fn our_grammar_takes_what_it_says() {
    for (text, size) in [
        ("1", Size::Bytes(1)),
        ("4294967296", Size::Bytes(4 * GIB)),
        ("007", Size::Bytes(7)),
        ("512Ki", Size::Bytes(512 * KIB)),
        ("512KiB", Size::Bytes(512 * KIB)),
        ("512Mi", Size::Bytes(512 * MIB)),
        ("512MiB", Size::Bytes(512 * MIB)),
        ("4Gi", Size::Bytes(4 * GIB)),
        ("4GiB", Size::Bytes(4 * GIB)),
        ("2Ti", Size::Bytes(2 * TIB)),
        ("2TiB", Size::Bytes(2 * TIB)),
        ("3K", Size::Bytes(3_000)),
        ("3KB", Size::Bytes(3_000)),
        ("3M", Size::Bytes(3_000_000)),
        ("3MB", Size::Bytes(3_000_000)),
        ("4G", Size::Bytes(4_000_000_000)),
        ("4GB", Size::Bytes(4_000_000_000)),
        ("1T", Size::Bytes(1_000_000_000_000)),
        ("1TB", Size::Bytes(1_000_000_000_000)),
        ("1.5GiB", Size::Bytes(1536 * MIB)),
        ("0.5Gi", Size::Bytes(512 * MIB)),
        ("1.0005KB", Size::Bytes(1000)),
        ("18446744073709551615", Size::Bytes(u64::MAX)),
        ("50%", Size::Percent(50_000_000)),
        ("100%", Size::Percent(100_000_000)),
        ("12.5%", Size::Percent(12_500_000)),
        ("0.000001%", Size::Percent(1)),
    ] {
        assert_eq!(Size::parse(text), Ok(size), "{text}");
    }
}

#[test]
fn our_grammar_refuses_everything_else() {
    for text in [
        "",
        " ",
        "GiB",
        "%",
        "-1",
        "+1",
        "-1GiB",
        "4 GiB",
        " 4GiB",
        "4GiB ",
        "4gib",
        "4gi",
        "4g",
        "4m",
        "4k",
        "4mib",
        "4GIB",
        "4gB",
        "4Gb",
        "4B",
        "4b",
        "4iB",
        "4GiBB",
        "4GBi",
        "4G4",
        "4G%",
        "1e9",
        "0x10",
        "1_000",
        "1,5GiB",
        ".5GiB",
        "5.GiB",
        "1.5",
        "1..5G",
        "1.5.5G",
        "1.0123456789G",
        "50 %",
        "%50",
        "50%%",
        "4Pi",
        "4EiB",
        "unlimited",
        "none",
        "nan",
        "inf",
        "٤GiB",
        "4GiB\n",
        "4\0",
    ] {
        assert_eq!(Size::parse(text), Err(BadSize::Grammar), "{text:?}");
    }
    for text in ["0", "00", "0GiB", "0.0GiB", "0%", "0.0000001%", "0.0001Ki"] {
        assert_eq!(Size::parse(text), Err(BadSize::Zero), "{text:?}");
        let request = Size::parse_request(text);
        match text {
            "0" => assert_eq!(request, Ok(Size::Bytes(0))),
            _ => assert_eq!(request, Err(BadSize::Zero), "{text:?}"),
        }
    }
    assert_eq!(Size::Bytes(0).to_string(), "0", "it reads back");
    assert_eq!(Size::parse_request("50%"), Size::parse("50%"));
    for text in [
        "18446744073709551616",
        "16777216TiB",
        "99999999999999999999GiB",
        "101%",
        "100.000001%",
        "400%",
    ] {
        assert_eq!(Size::parse(text), Err(BadSize::TooLarge), "{text:?}");
    }
}

#[test]
fn a_part_is_taken_of_the_device_it_is_applied_to() {
    for (text, capacity, bytes) in [
        ("50%", 16 * GIB, 8 * GIB),
        ("100%", 16 * GIB, 16 * GIB),
        ("33%", 100, 33),
        ("33.3%", 100, 33),
        ("100%", u64::MAX, u64::MAX),
        ("4GiB", GIB, 4 * GIB),
    ] {
        assert_eq!(
            Size::parse(text).map(|size| size.on(capacity)),
            Ok(bytes),
            "{text} of {capacity}"
        );
    }
}

#[test]
fn hami_letters_are_powers_of_two_and_zero_means_none() {
    for (text, bytes) in [
        ("", None),
        ("0", None),
        ("0m", None),
        ("1", Some(1)),
        ("4g", Some(4 * GIB)),
        ("4G", Some(4 * GIB)),
        ("512m", Some(512 * MIB)),
        ("512M", Some(512 * MIB)),
        ("8k", Some(8 * KIB)),
        ("8K", Some(8 * KIB)),
    ] {
        assert_eq!(parse_letters(text, false), Ok(bytes), "{text}");
    }
    for text in [
        "10Gi", "0.5g", "4GB", "4gb", "g", "-1", "4 g", "50%", "1t", "4gg",
    ] {
        assert_eq!(parse_letters(text, false), Err(BadSize::Grammar), "{text}");
    }
    assert_eq!(parse_letters("99999999999g", false), Err(BadSize::TooLarge));
}

#[test]
fn mps_letters_may_carry_a_byte_suffix() {
    for (text, bytes) in [
        ("1G", Some(GIB)),
        ("1GB", Some(GIB)),
        ("512MB", Some(512 * MIB)),
        ("0", None),
    ] {
        assert_eq!(parse_letters(text, true), Ok(bytes), "{text}");
    }
    for text in ["1GiB", "1BB", "1B", "1GBB"] {
        assert_eq!(parse_letters(text, true), Err(BadSize::Grammar), "{text}");
    }
}

#[test]
fn toolkit_values_are_whole_mebibytes() {
    for (text, bytes) in [("", None), ("0", None), ("4096", Some(4 * GIB))] {
        assert_eq!(parse_mebibytes(text), Ok(bytes), "{text}");
    }
    for text in ["4GiB", "4096Mi", "1.5", "-1", " 1"] {
        assert_eq!(parse_mebibytes(text), Err(BadSize::Grammar), "{text}");
    }
}

proptest! {
    #[test]
    fn a_printed_size_reads_back(bytes in 1..=u64::MAX, part in 1..=WHOLE) {
        for size in [Size::Bytes(bytes), Size::Percent(part)] {
            prop_assert_eq!(Size::parse(&size.to_string()), Ok(size));
        }
    }

    #[test]
    fn a_part_never_exceeds_its_device(part in 1..=WHOLE, capacity: u64) {
        prop_assert!(Size::Percent(part).on(capacity) <= capacity);
    }

    #[test]
    fn any_text_is_read_without_panic(text: String) {
        let _ = (Size::parse(&text), parse_letters(&text, true), parse_mebibytes(&text));
    }
}

//! Amounts in few columns.

/// A count in at most four columns below 1,000 millions: `9999`, `12k`, `3M`.
pub(super) fn count(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..1_000_000 => format!("{}k", count / 1_000),
        _ => format!("{}M", count / 1_000_000),
    }
}

/// Bytes in at most four columns below 1,000 TiB: `512M`, `22G`, `1.5G`, `0`. Rounded to what is
/// shown.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (1 << 40, "T"),
        (1 << 30, "G"),
        (1 << 20, "M"),
        (1 << 10, "K"),
    ];
    if count == 0 {
        return "0".to_owned();
    }
    for (unit, name) in UNITS {
        // From 999.5 of the smaller unit on: rounded they would take five columns.
        if count >= unit / 1024 * 1000 - unit / 2048 {
            let tenths = (u128::from(count) * 10 + u128::from(unit) / 2) / u128::from(unit);
            return if tenths >= 100 || tenths % 10 == 0 {
                format!("{}{name}", (tenths + 5) / 10)
            } else {
                format!("{}.{}{name}", tenths / 10, tenths % 10)
            };
        }
    }
    format!("{count}B")
}

/// A span in milliseconds: `3s`, `14m`, `2h`, `3d`.
pub(super) fn span(millis: u64) -> String {
    let seconds = millis / 1000;
    for (length, name) in [(86_400, "d"), (3_600, "h"), (60, "m")] {
        if seconds >= 2 * length {
            return format!("{}{name}", seconds / length);
        }
    }
    format!("{seconds}s")
}

/// A time in nanoseconds, as a bound: `30us`, `3ms`, `1s`.
pub(super) fn bound(ns: u64) -> String {
    for (length, name) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")] {
        if ns >= length {
            return format!("{}{name}", ns / length);
        }
    }
    format!("{ns}ns")
}

/// A time in nanoseconds that 99 % do not exceed, by a histogram: `<3ms`; `>300s` above its last
/// bound.
pub(super) fn within(ns: u64) -> String {
    match ns {
        u64::MAX => ">300s".to_owned(),
        ns => format!("<{}", bound(ns)),
    }
}

/// Thousandths in whole percent.
pub(super) fn percent(permille: u32) -> String {
    format!("{}%", permille.saturating_add(5) / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_short() {
        let gib = 1_u64 << 30;
        for (count, text) in [
            (0, "0"),
            (100, "100B"),
            (512 << 20, "512M"),
            (gib, "1G"),
            (3 * gib / 2, "1.5G"),
            (22 * gib + gib / 3, "22G"),
            (999 << 20, "999M"),
            (1023 << 20, "1G"),
            (1000 << 30, "1T"),
            (2 << 40, "2T"),
            (u64::MAX, "16777216T"),
        ] {
            assert_eq!(bytes(count), text);
        }
        for (many, text) in [(0, "0"), (9_999, "9999"), (10_000, "10k"), (12_345, "12k")] {
            assert_eq!(count(many), text);
        }
        assert_eq!([count(999_999), count(3_000_000)], ["999k", "3M"]);
        assert_eq!(
            [span(900), span(119_000), span(120_000)],
            ["0s", "119s", "2m"]
        );
        assert_eq!(span(3 * 86_400_000), "3d");
        assert_eq!(
            [bound(30_000), bound(3_000_000), bound(300_000_000_000)],
            ["30us", "3ms", "300s"]
        );
        assert_eq!([within(3_000_000), within(u64::MAX)], ["<3ms", ">300s"]);
        assert_eq!(
            [percent(695), percent(0), percent(1000)],
            ["70%", "0%", "100%"]
        );
    }
}

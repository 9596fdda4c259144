//! Times as people give and read them: `8h`, `2026-11-22 08:00`, ages, local time.

use crate::failure::Failure;
use crate::output;
use gpushare_protocol::limits;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use std::sync::Once;

/// How a moment is written with its distance to UTC.
const ZONED: &str = "%Y-%m-%d %H:%M:%S %:z";

/// Milliseconds since 1970, now.
#[expect(
    clippy::disallowed_methods,
    reason = "compared with the labels of events, which are of the same clock"
)]
pub(crate) fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// A moment in the past, as milliseconds since 1970: an age such as `8h`, or a local date or time.
/// A time of day that has not come yet today is yesterday's.
pub(crate) fn since(text: &str, now_ms: u64) -> Result<u64, Failure> {
    let zone = zone();
    let found = age(text)
        .map(|age| now_ms.saturating_sub(age))
        .or_else(|| moment(text, now_ms, &zone));
    let problem = match found {
        Some(at) if at <= now_ms => return Ok(at),
        Some(_) => "is in the future",
        None => "is refused",
    };
    Err(Failure::usage(format!(
        "--since={text:?} {problem}; accepted: an age (90s, 30m, 8h, 2d) or a local time (08:00, 2026-11-22, \"2026-11-22 08:00\")"
    )))
}

/// A time as of a flag: `500ms`, `30s`, `5m`, as limits have it.
pub(crate) fn span_of(text: &str) -> Result<std::time::Duration, String> {
    let accepted =
        "a whole number with ms, s, m, h, d or w, more than zero, at most a year (500ms, 30s, 5m)";
    limits::span(text).ok_or_else(|| accepted.to_owned())
}

/// `90s`, `30m`, `8h`, `2d`, `1w`, in milliseconds.
fn age(text: &str) -> Option<u64> {
    let unit = text.chars().next_back()?;
    let number = text.strip_suffix(unit)?;
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 24 * 3600,
        'w' => 7 * 24 * 3600,
        _ => return None,
    };
    Some(number.parse::<u64>().ok()?.saturating_mul(seconds * 1000))
}

/// `08:00` of today, or of yesterday where that is yet to come, `2026-11-22`, `2026-11-22 08:00`,
/// in this zone.
fn moment(text: &str, now_ms: u64, zone: &TimeZone) -> Option<u64> {
    let now = at(now_ms, zone)?.datetime();
    let civil: DateTime = match text.parse::<DateTime>() {
        Ok(civil) => civil,
        Err(_) => match text.parse::<jiff::civil::Time>() {
            Ok(time) => match now.date().to_datetime(time) {
                today if today <= now => today,
                _ => now.date().yesterday().ok()?.to_datetime(time),
            },
            Err(_) => text.parse::<Date>().ok()?.into(),
        },
    };
    let stamp = civil.to_zoned(zone.clone()).ok()?.timestamp();
    u64::try_from(stamp.as_millisecond()).ok()
}

fn at(ms: u64, zone: &TimeZone) -> Option<Zoned> {
    let stamp = Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()?;
    Some(stamp.to_zoned(zone.clone()))
}

/// Local date and time, to the second.
pub(crate) fn local(ms: u64) -> String {
    written(ms, &zone())
}

/// The same with its distance to UTC, for what is read elsewhere.
pub(crate) fn zoned(ms: u64) -> String {
    by(ms, &zone(), ZONED)
}

/// The zone of this shell, and UTC where it names none that is known here, which is said once.
fn zone() -> TimeZone {
    static TOLD: Once = Once::new();
    TimeZone::try_system().unwrap_or_else(|_| {
        if let Some(name) = std::env::var_os("TZ") {
            TOLD.call_once(|| {
                output::note(&format!(
                    "note: TZ={} names no time zone that is known here: times are UTC",
                    name.display()
                ));
            });
        }
        TimeZone::UTC
    })
}

fn written(ms: u64, zone: &TimeZone) -> String {
    by(ms, zone, "%Y-%m-%d %H:%M:%S")
}

fn by(ms: u64, zone: &TimeZone, form: &str) -> String {
    at(ms, zone).map_or_else(|| format!("{ms} ms"), |at| at.strftime(form).to_string())
}

/// A span in the two largest units people use: `2 d 3 h`, `14 min`, `3 s`, `40 ms`.
pub(crate) fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let two = |more: u64, more_unit: &str, less: u64, less_unit: &str| match less {
        0 => format!("{more} {more_unit}"),
        _ => format!("{more} {more_unit} {less} {less_unit}"),
    };
    match seconds {
        0 => format!("{ms} ms"),
        1..120 => format!("{seconds} s"),
        120..3600 => format!("{minutes} min"),
        3600..86_400 => two(hours, "h", minutes, "min"),
        _ => two(days, "d", hours, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_a_flag_is_one_that_a_limit_may_be() {
        for (text, millis) in [("500ms", 500), ("30s", 30_000), ("1w", 604_800_000)] {
            assert_eq!(span_of(text).unwrap().as_millis(), millis, "{text}");
        }
        for text in ["0s", "0ms", "30", "ms", "9999w", "99999999999999999999s"] {
            let accepted = span_of(text).unwrap_err();
            assert!(accepted.contains("at most a year"), "{text}: {accepted}");
        }
    }

    /// 2026-11-22 12:00:00 UTC.
    const NOON: u64 = 1_795_348_800_000;

    #[test]
    fn an_age_or_a_local_time_says_since_when() {
        let utc = TimeZone::UTC;
        for (text, before) in [
            ("90s", 90),
            ("30m", 1800),
            ("8h", 8 * 3600),
            ("2d", 2 * 86_400),
            ("1w", 7 * 86_400),
            ("0s", 0),
        ] {
            assert_eq!(age(text), Some(before * 1000), "{text}");
            assert_eq!(since(text, NOON).ok(), Some(NOON - before * 1000), "{text}");
        }
        for (text, before) in [
            ("08:00", 4 * 3600),
            ("08:00:30", 4 * 3600 - 30),
            ("2026-11-22", 12 * 3600),
            ("2026-11-22 08:00", 4 * 3600),
            ("2026-11-22T08:00:00", 4 * 3600),
        ] {
            let found = moment(text, NOON, &utc);
            assert_eq!(found, Some(NOON - before * 1000), "{text}");
        }
        // Of the day before where it has not come yet today.
        for (text, before) in [("12:00", 0), ("12:01", 86_340), ("23:00", 13 * 3600)] {
            let found = moment(text, NOON, &utc);
            assert_eq!(found, Some(NOON - before * 1000), "{text}");
        }
        for text in ["2026-11-22 23:00", "2026-11-23", "2062-11-22"] {
            let found = moment(text, NOON, &utc);
            assert!(found.is_some_and(|at| at > NOON), "{text}");
            let refused = since(text, NOON).expect_err(text).message;
            assert!(refused.contains("in the future"), "{refused}");
        }
        for text in ["", "h", "8", "8x", "-8h", "1.5h", "yesterday", "25:00", "é"] {
            let refused = since(text, NOON).expect_err(text).message;
            assert!(
                refused.contains("8h") && refused.contains(text),
                "{refused}"
            );
        }
        assert_eq!(since("99999999999w", NOON).ok(), Some(0));
    }

    /// A file of the format TZif for a zone with one rule, as of `tzfile(5)`.
    fn tzif(offset: i32, name: &str, rule: &str) -> Vec<u8> {
        let letters = u32::try_from(name.len() + 1).unwrap();
        let counts = [0, 0, 0, 0, 1, letters];
        let mut block = [&b"TZif2"[..], &[0; 15]].concat();
        block.extend(counts.iter().flat_map(|count: &u32| count.to_be_bytes()));
        block.extend(offset.to_be_bytes());
        block.extend([0, 0]);
        block.extend(name.bytes().chain([0]));
        [&block[..], &block, format!("\n{rule}\n").as_bytes()].concat()
    }

    #[test]
    fn a_zone_is_found_by_its_name_and_another_name_is_none() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("Asia")).unwrap();
        let file = tzif(19_800, "IST", "IST-5:30");
        std::fs::write(dir.path().join("Asia/Kolkata"), file).unwrap();
        let known = jiff::tz::TimeZoneDatabase::from_dir(dir.path()).unwrap();
        let zone = known.get("Asia/Kolkata").unwrap();
        assert_eq!(written(NOON, &zone), "2026-11-22 17:30:00");
        assert_eq!(by(NOON, &zone, ZONED), "2026-11-22 17:30:00 +05:30");
        assert_eq!(moment("17:30", NOON, &zone), Some(NOON));
        assert!(known.get("Asia/Calcuta").is_err());
    }

    #[test]
    fn times_and_spans_are_written_for_people() {
        assert_eq!(written(NOON + 999, &TimeZone::UTC), "2026-11-22 12:00:00");
        for (ms, text) in [
            (40, "40 ms"),
            (3_999, "3 s"),
            (119_000, "119 s"),
            (14 * 60_000, "14 min"),
            (3_600_000, "1 h"),
            (5_400_000, "1 h 30 min"),
            (86_400_000, "1 d"),
            (183_600_000, "2 d 3 h"),
        ] {
            assert_eq!(span(ms), text);
        }
    }
}

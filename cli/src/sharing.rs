//! How devices' time is shared, as `ps` and `devices` show it.

use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::{Regime, SharingRow};
use serde_json::{Value, json};

/// Books that are off the clock by more thousandths of the time are worth a line.
const OFF: i32 = 50;

/// The row of a device.
pub(crate) fn of(device: [u8; 16], rows: &[SharingRow]) -> Option<&SharingRow> {
    rows.iter().find(|row| row.device == device)
}

/// For `--json`. `books_off`: in percent of the time.
pub(crate) fn data(row: &SharingRow) -> Value {
    json!({
        "now": name(row.regime),
        "mode_changes": row.changes,
        "mode_changes_a_minute": row.lately,
        "books_off": row.off.map(|off| f64::from(off) / 10.0),
    })
}

/// For the table of devices.
pub(crate) fn text(row: &SharingRow) -> String {
    match row.regime {
        Regime::Turns => "time: turns".to_owned(),
        regime => {
            let (name, lately) = (name(regime), row.lately);
            let off = warning(row).map_or_else(String::new, |warning| format!("; {warning}"));
            format!("time: {name}, {lately} mode changes in the last minute{off}")
        }
    }
}

/// One line about a device whose bills disagree with the clock; `None` where they agree, or are
/// unknown.
pub(crate) fn note(row: &SharingRow) -> Option<String> {
    let warning = warning(row)?;
    Some(format!("note: {}: {warning}", Uuid(row.device)))
}

fn warning(row: &SharingRow) -> Option<String> {
    let off = row.off.filter(|off| off.abs() > OFF)?;
    let percent = f64::from(off.abs()) / 10.0;
    Some(if off < 0 {
        format!(
            "tenants' completed work adds up to {percent:.1} % less than the time; estimates are too short, or work \
             passes no gate"
        )
    } else {
        format!(
            "tenants' completed work adds up to {percent:.1} % more than the time; estimates are too long"
        )
    })
}

fn name(regime: Regime) -> &'static str {
    match regime {
        Regime::Turns => "turns",
        Regime::Together => "together",
        Regime::Yielding => "yielding",
        Regime::Held => "held",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(regime: Regime, off: Option<i32>) -> SharingRow {
        SharingRow {
            device: [7; 16],
            regime,
            changes: 9,
            lately: 4,
            off,
        }
    }

    #[test]
    fn a_device_says_how_its_time_is_shared() {
        let yields = row(Regime::Yielding, Some(-12));
        assert_eq!(
            text(&yields),
            "time: yielding, 4 mode changes in the last minute"
        );
        assert_eq!(text(&row(Regime::Turns, None)), "time: turns");
        let json = data(&yields);
        assert_eq!(
            (&json["now"], &json["books_off"]),
            (&json!("yielding"), &json!(-1.2))
        );
        assert_eq!(json["mode_changes_a_minute"], json!(4));
    }

    #[test]
    fn books_are_noted_only_where_they_are_off_by_over_5_percent() {
        for off in [None, Some(0), Some(50), Some(-50)] {
            assert_eq!(note(&row(Regime::Held, off)), None, "{off:?}");
        }
        let less = note(&row(Regime::Held, Some(-72))).unwrap_or_default();
        assert!(less.contains("7.2 % less"), "{less}");
        assert!(less.contains("07070707"), "{less}");
        let more = text(&row(Regime::Together, Some(51)));
        assert!(more.contains("5.1 % more"), "{more}");
    }
}

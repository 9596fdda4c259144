//! How a device's time is shared, as `gpushare ps` shows it.

use gpushare_exporter::{Had, due};
use gpushare_protocol::wire::{ShareRow, ShareState, Steered, SteeredBy, TenantRow};
use serde_json::{Value, json};

/// The share that belongs to a tenant's row.
pub(crate) fn of<'a>(row: &TenantRow, shares: &'a [ShareRow]) -> Option<&'a ShareRow> {
    shares
        .iter()
        .find(|share| (&share.name, share.device) == (&row.name, row.device))
}

/// For `--json`: parts are in percent of the device's time.
/// `mps`: it has processes that are MPS clients.
pub(crate) fn data(share: &ShareRow, mps: bool) -> Value {
    let percent = |thousandths: u32| f64::from(thousandths) / 10.0;
    let (state, for_us) = state(&share.state);
    json!({
        "share": percent(share.weight),
        "request": share.request.map(percent),
        "cap": share.cap.map(percent),
        "held": percent(share.held),
        "alone": share.alone.filter(|alone| alone.over_ms > 0).map(|alone| percent(alone.part)),
        "over_ms": share.over_ms,
        "state": state,
        "for_us": for_us,
        "turns": share.turns,
        "overruns": share.overruns,
        "ungated": share.ungated,
        "mps": mps,
        "cause": share.steered.as_ref().map(cause),
        "for": share.steered.as_ref().and_then(|steered| steered.tenant.clone()),
    })
}

/// For the table: the time it had lately, the time it would get if all wanted the device, and its
/// state. Of one that is alone, and billed nothing, the time that NVML saw its kernels run. A
/// tenant with MPS clients has a part of what MPS shares: `mps`.
pub(crate) fn text(share: Option<&ShareRow>, mps: bool) -> String {
    let Some(share) = share else {
        return "-".to_owned();
    };
    let percent = |thousandths: u32| match thousandths % 10 {
        0 => format!("{}%", thousandths / 10),
        tenths => format!("{}.{tenths}%", thousandths / 10),
    };
    let cap = share
        .cap
        .map_or_else(String::new, |cap| format!(", at most {}", percent(cap)));
    if mps {
        return format!("mps{cap}");
    }
    let had = Had::of(share);
    match (&share.state, due(share)) {
        (ShareState::Free, _) => match had.part {
            Some(part) => format!("{} alone{cap}", percent(part)),
            None => format!("free{cap}"),
        },
        // It is not on the device.
        (_, None) => format!("-{cap}"),
        (doing, Some(weight)) => {
            let (state, _) = state(doing);
            let had = had.part.map_or_else(|| "-".to_owned(), percent);
            format!("{had} of {}{cap}, {state}", percent(weight))
        }
    }
}

/// Why a tenant yields or is held, in a word.
fn cause(steered: &Steered) -> &'static str {
    match steered.cause {
        SteeredBy::Share => "share",
        SteeredBy::Request => "request",
        SteeredBy::Priority => "priority",
        SteeredBy::Turn => "turn",
        SteeredBy::Gang => "gang",
        _ => "unknown",
    }
}

/// A state's name and how long it lasts.
fn state(state: &ShareState) -> (&'static str, Option<u64>) {
    match state {
        ShareState::Free => ("free", None),
        ShareState::Idle => ("idle", None),
        ShareState::Holding { for_us } => ("holding", Some(*for_us)),
        ShareState::Draining { for_us } => ("draining", Some(*for_us)),
        ShareState::Waiting { for_us } => ("waiting", Some(*for_us)),
        ShareState::Capped { for_us } => ("capped", Some(*for_us)),
        ShareState::Sharing { for_us } => ("sharing", Some(*for_us)),
        ShareState::Yielding { for_us } => ("yielding", Some(*for_us)),
        ShareState::Held { for_us } => ("held", Some(*for_us)),
        _ => ("unknown", None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_protocol::wire::Alone;

    fn share(weight: u32, state: ShareState) -> ShareRow {
        ShareRow {
            name: "a".to_owned(),
            device: [7; 16],
            weight,
            request: Some(300),
            cap: None,
            held: 298,
            over_ms: 9_000,
            state,
            turns: 4,
            overruns: 1,
            alone: None,
            steered: None,
            ungated: 0,
        }
    }

    #[test]
    fn a_share_is_said_in_percent_with_what_the_tenant_is_doing() {
        let mut row = share(300, ShareState::Waiting { for_us: 7 });
        assert_eq!(text(Some(&row), false), "29.8% of 30%, waiting");
        row.cap = Some(505);
        assert_eq!(
            text(Some(&row), false),
            "29.8% of 30%, at most 50.5%, waiting"
        );
        assert_eq!(text(Some(&row), true), "mps, at most 50.5%");
        let json = data(&row, false);
        assert_eq!(
            (&json["held"], &json["cap"], &json["for_us"]),
            (&json!(29.8), &json!(50.5), &json!(7))
        );
        assert_eq!((&json["cause"], &json["for"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn one_that_is_held_has_the_cause_and_the_other_tenant() {
        let mut row = share(300, ShareState::Held { for_us: 7 });
        row.steered = Some(Steered {
            cause: SteeredBy::Request,
            tenant: Some("web".to_owned()),
        });
        let json = data(&row, false);
        assert_eq!(
            (&json["cause"], &json["for"]),
            (&json!("request"), &json!("web"))
        );
        assert_eq!(text(Some(&row), false), "29.8% of 30%, held");
    }

    #[test]
    fn one_alone_or_not_on_the_device_has_no_part_to_show() {
        assert_eq!(text(None, false), "-");
        assert_eq!(text(Some(&share(1000, ShareState::Free)), false), "free");
        let mut gone = share(0, ShareState::Idle);
        (gone.held, gone.over_ms) = (0, 0);
        assert_eq!(text(Some(&gone), false), "-");
        assert_eq!(text(Some(&gone), true), "mps");
    }

    #[test]
    fn one_without_a_share_is_said_to_have_what_it_had() {
        // A higher priority leaves it none, whatever it had.
        let mut row = share(0, ShareState::Held { for_us: 7 });
        row.held = 900;
        assert_eq!(text(Some(&row), false), "90% of 0%, held");
        row.state = ShareState::Idle;
        assert_eq!(text(Some(&row), false), "90% of 0%, idle");
        // It is not on the device: nothing is counted.
        (row.held, row.over_ms) = (0, 0);
        assert_eq!(text(Some(&row), false), "-");
    }

    #[test]
    fn one_alone_has_what_nvml_saw_and_one_not_counted_has_no_part() {
        let mut row = share(1000, ShareState::Free);
        row.held = 0;
        let alone = |over_ms| Some(Alone { part: 931, over_ms });
        row.alone = alone(9_000);
        assert_eq!(text(Some(&row), false), "93.1% alone");
        assert_eq!(data(&row, false)["alone"], json!(93.1));
        row.alone = alone(0);
        assert_eq!(text(Some(&row), false), "free");
        assert_eq!(data(&row, false)["alone"], Value::Null);
        row.alone = None;
        row.state = ShareState::Sharing { for_us: 1 };
        row.over_ms = 0;
        assert_eq!(text(Some(&row), false), "- of 100%, sharing");
    }
}

//! Each tenant's part of what all tenants got, and its distance from the part that it was promised,
//! in the unit of the promise (docs/adr/0272).

use super::measure;
use super::result::Row;
use super::tenant::Mode;

/// A tenant that keeps the device less busy than this when alone leaves gaps.
const SATURATES: f64 = 0.95;

/// The unit in which tenants' parts are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// The time that the completed kernels take alone.
    Device,
    /// That time, divided by the same of the tenant when it is alone: in exclusive turns, where a
    /// tenant's gaps are part of its turn.
    Alone,
    /// The time for which the device was occupied, by the software GPU's counters: a gang is
    /// promised that, and its kernels occupy the device while they wait for each other.
    Served,
}

impl Unit {
    fn of(rows: &[Row], in_turns: bool) -> Self {
        let gaps = |row: &Row| row.alone.is_some_and(|alone| alone < SATURATES);
        let all_alone = rows.iter().all(|row| alone(row).is_some());
        if has_gang(rows) && rows.iter().all(|row| row.served.is_some()) && is_given(rows) {
            Self::Served
        } else if in_turns && rows.len() > 1 && rows.iter().any(gaps) && all_alone {
            Self::Alone
        } else {
            Self::Device
        }
    }

    /// As the output says it.
    fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Alone => "alone",
            Self::Served => "served",
        }
    }

    /// The amount that a tenant had.
    fn had(self, row: &Row) -> f64 {
        match self {
            Self::Device => row.device,
            Self::Alone => row.device / alone(row).unwrap_or(1.0),
            Self::Served => row.served.unwrap_or_default(),
        }
    }
}

fn alone(row: &Row) -> Option<f64> {
    row.alone.filter(|alone| *alone > 0.0)
}

fn has_gang(rows: &[Row]) -> bool {
    rows.iter().any(|row| row.tenant.mode == Mode::Gang)
}

/// Whether every tenant was promised a share.
fn is_given(rows: &[Row]) -> bool {
    rows.iter().all(|row| row.tenant.share.is_some())
}

/// Computes parts, and their distance from the target where weights and caps alone determine it.
pub(super) fn judge(rows: &mut [Row], in_turns: bool) {
    let unit = Unit::of(rows, in_turns);
    let all: f64 = rows.iter().map(|row| unit.had(row)).sum();
    let served: Option<f64> = rows.iter().map(|row| row.served).sum();
    let entitled = entitled(rows, unit);
    let lone = rows.len() == 1;
    // A lone tenant has no part of a sum: its cap is a fraction of the device.
    let part = |own: f64, all: f64| {
        if lone {
            own
        } else {
            own / all.max(f64::MIN_POSITIVE)
        }
    };
    for (at, row) in rows.iter_mut().enumerate() {
        row.share = part(unit.had(row), all);
        row.by = unit.name();
        row.entitled = entitled.as_ref().map(|entitled| entitled[at]);
        row.error_pp = row.entitled.map(|entitled| (row.share - entitled) * 100.0);
        row.error_served_pp = match (row.served, served, row.entitled) {
            (Some(own), Some(all), Some(entitled)) if unit != Unit::Alone => {
                Some((part(own, all) - entitled) * 100.0)
            }
            _ => None,
        };
    }
}

/// The fraction of the sum that each tenant should have. `None` if weights alone do not decide:
/// with priorities, pauses, a mixture of given and open shares, or a gang whose occupied time is
/// not known.
fn entitled(rows: &[Row], unit: Unit) -> Option<Vec<f64>> {
    let tenants = || rows.iter().map(|row| &row.tenant);
    let first = rows.first()?.tenant.priority;
    let plain = tenants()
        .all(|tenant| tenant.is_busy() && tenant.priority == first && tenant.launch_ns() > 0);
    let given = tenants().filter(|tenant| tenant.share.is_some()).count();
    let unknown = has_gang(rows) && unit != Unit::Served;
    if !plain || unknown || (given != 0 && given != rows.len()) {
        return None;
    }
    let terms: Vec<(f64, f64)> = rows
        .iter()
        .map(|row| {
            let cap = f64::from(row.tenant.cap.unwrap_or(100)) / 100.0;
            // More than it can use is no tenant's part: the others have the rest.
            let most = alone(row).filter(|_| unit == Unit::Device).unwrap_or(1.0);
            (f64::from(row.tenant.share.unwrap_or(1)), cap.min(most))
        })
        .collect();
    let entitled = measure::entitled(&terms);
    let all: f64 = if rows.len() == 1 {
        1.0
    } else {
        entitled.iter().sum()
    };
    Some(entitled.into_iter().map(|part| part / all).collect())
}

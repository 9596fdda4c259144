//! Changes of a tenant's variables: what a new value takes the place of, and what stays.
//!
//! A value for every device takes the place of all values of its variable; a value for one device
//! that of the same device's, however that is named. What an alias says stays beside a change of
//! the other of limit and request, although our own variables take precedence as a block: before
//! the change the alias's amounts are written in our variables.
//!
//! Any user of the machine sends changes, so the work grows with the sum of variables and changes,
//! but for comparisons of places.

use super::amounts::{Amounts, Said};
use super::error::LimitError;
use super::layer::Selector;
use super::model::Limits;
use super::table;
use crate::uuid::Uuid;
use std::collections::BTreeMap;

/// Variables and their values.
type Variables = Vec<(String, String)>;

/// Limit and request of memory, and of time.
const MEMORY: [&str; 2] = ["GPUSHARE_MEM_LIMIT", "GPUSHARE_MEM_REQUEST"];
const TIME: [&str; 2] = ["GPUSHARE_SM_LIMIT", "GPUSHARE_SM_REQUEST"];

/// Whether a new value of the variable `change` takes the place of a value of `known`. `devices`
/// are the tenant's, as its programs count them; without them an ordinal and a UUID never name the
/// same device.
pub fn replaces(change: &str, known: &str, devices: &[[u8; 16]]) -> bool {
    match (table::place(change), table::place(known)) {
        (Some(change), Some(known)) => covers(change, known, devices),
        _ => change == known,
    }
}

/// Whether a value at the one place takes the place of a value at the other.
fn covers(
    (row, device): (usize, Selector),
    (known_row, known_device): (usize, Selector),
    devices: &[[u8; 16]],
) -> bool {
    row == known_row && (device == Selector::All || is_same(device, known_device, devices))
}

/// Whether a variable of this name means nothing to a tenant: it says no limit, and is not a
/// misspelt one either, which is refused wherever limits are read.
pub fn means_nothing(name: &str) -> bool {
    table::is_foreign(name)
}

fn is_same(one: Selector, other: Selector, devices: &[[u8; 16]]) -> bool {
    let uuid = |device: Selector| match device {
        Selector::Ordinal(ordinal) => devices.get(ordinal as usize).copied().map(Uuid),
        Selector::Uuid(uuid) => Some(uuid),
        Selector::All => None,
    };
    one == other || uuid(one).is_some() && uuid(one) == uuid(other)
}

/// The variables of a tenant on these `devices` after `changes`. What is not changed keeps its
/// effect, in whatever variable it was said. What [means nothing](means_nothing) is left out.
///
/// # Errors
/// If the tenant's variables, over the node's `defaults` for unset ones, are no limits.
pub fn changed(
    environment: &[(String, String)],
    defaults: &[(String, String)],
    devices: &[[u8; 16]],
    changes: &[(String, String)],
) -> Result<Variables, LimitError> {
    let pairs = |set: &[(String, String)]| -> Vec<_> {
        let pair = |(name, value): &(String, String)| (name.into(), value.into());
        set.iter().map(pair).collect()
    };
    let limits = Limits::from_env_over(pairs(environment), pairs(defaults))?;
    let mut changed = environment.to_vec();
    changed.extend(from_aliases(&limits.memory, MEMORY, devices, changes));
    changed.extend(from_aliases(&limits.time, TIME, devices, changes));
    // Of changes of one name the last counts.
    let last: BTreeMap<&str, usize> = (0..)
        .zip(changes)
        .map(|(at, (name, _))| (name.as_str(), at))
        .collect();
    let places: Vec<_> = last.keys().filter_map(|name| table::place(name)).collect();
    changed.retain(|(known, _)| {
        let place = table::place(known);
        let mut places = places.iter();
        let replaced = place.is_some_and(|known| places.any(|of| covers(*of, known, devices)));
        !replaced && !last.contains_key(known.as_str()) && !means_nothing(known)
    });
    let new = (0..)
        .zip(changes)
        .filter(|(at, (name, _))| last.get(name.as_str()) == Some(at));
    changed.extend(new.map(|(_, change)| change.clone()));
    Ok(changed)
}

/// What aliases say of the devices, in our own variables, where a change is to one of these.
fn from_aliases<const OWNERS: usize>(
    amounts: &Amounts<OWNERS>,
    [limit, request]: [&str; 2],
    devices: &[[u8; 16]],
    changes: &[(String, String)],
) -> Variables {
    let row = |name: &str| table::place(name).map(|(row, _)| row);
    let rows = [row(limit), row(request)];
    if !changes.iter().any(|(name, _)| rows.contains(&row(name))) {
        return Variables::new();
    }
    let mut found = Variables::new();
    for Said {
        device,
        limit: most,
        request: least,
    } in amounts.said_by_aliases(devices)
    {
        let amounts = [(limit, most), (request, least)];
        let set = amounts.map(|(base, size)| Some((device.variable(base), size?.to_string())));
        found.extend(set.into_iter().flatten());
    }
    found
}

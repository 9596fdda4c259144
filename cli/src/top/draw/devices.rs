//! The lines of the GPUs: three of each where there is room, else one.

use super::{ALARM, DIM, PLAIN, Pen};
use crate::top::amounts::{bound, bytes, within};
use crate::top::model::Model;
use gpushare_exporter::{Snapshot, device_name};
use gpushare_protocol::wire::{DeviceRow, Place, ProcessState, ShareRow, ShareState};
use ratatui_core::style::Modifier;
use std::collections::BTreeSet;

/// The widest bar, and the narrowest one.
const BAR: usize = 40;
const LEAST: usize = 10;

/// Draws the GPUs, in about a third of the height at most: the tenants need the rest.
pub(super) fn devices(pen: &mut Pen<'_>, model: &Model) {
    let snapshot = &model.snapshot;
    let most = usize::from(pen.area.height) / 3;
    let tall = snapshot.devices.len() * 3 <= most;
    let places = shown(snapshot, most);
    for at in &places {
        if let Some(row) = snapshot.devices.get(*at) {
            device(pen, model, (*at, row), tall);
        }
    }
    let rest = snapshot.devices.iter().enumerate();
    let rest = rest.filter(|(at, _)| !places.contains(at));
    let rest: Vec<&DeviceRow> = rest.map(|(_, row)| row).collect();
    let lost = rest.iter().filter(|row| row.is_lost()).count();
    let lost = match lost {
        0 => String::new(),
        lost => format!(", {lost} lost"),
    };
    match rest.len() {
        0 => {}
        1 => pen.line(&format!("1 more GPU{lost}"), DIM),
        many => pen.line(&format!("{many} more GPUs{lost}"), DIM),
    }
}

/// The places of the GPUs that have a line. Where not all fit into so many lines, the lost ones
/// come first, then those with tenants, then those with memory of no tenant.
fn shown(snapshot: &Snapshot, lines: usize) -> Vec<usize> {
    let all = snapshot.devices.iter().enumerate();
    if snapshot.devices.len() <= lines.max(1) {
        return all.map(|(at, _)| at).collect();
    }
    let used = snapshot.shown().into_iter().map(|(row, _)| row.device);
    let used: BTreeSet<[u8; 16]> = used.collect();
    let rank = |row: &DeviceRow| match row.is_lost() {
        true => 0,
        false if used.contains(&row.uuid) => 1,
        false if row.unmanaged > 0 => 2,
        false => 3,
    };
    let mut ranked: Vec<(u8, usize)> = all.map(|(at, row)| (rank(row), at)).collect();
    ranked.sort_unstable();
    // The last line says how many more there are.
    ranked.truncate(lines.saturating_sub(1).max(1));
    let mut places: Vec<usize> = ranked.into_iter().map(|(_, at)| at).collect();
    places.sort_unstable();
    places
}

fn device(pen: &mut Pen<'_>, model: &Model, (at, row): (usize, &DeviceRow), tall: bool) {
    let snapshot = &model.snapshot;
    let uuid: String = device_name(row).chars().take(12).collect();
    let name = format!("GPU {at} {} {uuid}", row.name);
    let mode = snapshot.sharing.iter().find(|one| one.device == row.uuid);
    let mode = mode.map_or_else(String::new, |one| {
        format!("{:?}", one.regime).to_lowercase()
    });
    let mut state = [mode, snapshot.health_text(row.uuid)];
    if row.is_lost() {
        // Its health says so.
        state.reverse();
    }
    let state = state.iter().filter(|part| !part.is_empty());
    let state: String = state.map(|part| format!("  {part}")).collect();
    let style = match row.is_lost() {
        true => ALARM,
        false => PLAIN,
    };
    let memory = Memory::of(snapshot, row);
    let amounts = &memory.text;
    let width = usize::from(pen.area.width);
    if !tall {
        // A narrow terminal cuts the end. Of a lost GPU that is the memory.
        let mut short = match row.is_lost() {
            true => format!("{name}{state}  {amounts}"),
            false => format!("{name}  {amounts}{state}"),
        };
        // Its brackets, and two spaces before it.
        let room = width.saturating_sub(short.chars().count() + 4);
        if room >= LEAST {
            short.push_str(&format!("  {}", memory.bar(room.min(BAR))));
        }
        return pen.line(&short, style);
    }
    pen.line(
        &format!("{name}{state}"),
        style.add_modifier(Modifier::BOLD),
    );
    // The length of " mem [] " is 8.
    let room = width.saturating_sub(amounts.len() + 8);
    let bar = memory.bar(room.clamp(LEAST, BAR));
    pen.line(&format!(" mem {bar} {amounts}"), PLAIN);
    pen.line(&format!(" {}", time(model, row).join("  ")), DIM);
}

/// Words about the device's time.
fn time(model: &Model, row: &DeviceRow) -> Vec<String> {
    let snapshot = &model.snapshot;
    let mut parts = Vec::new();
    let works = snapshot.shares.iter();
    let works = works.filter(|share| share.device == row.uuid && works_now(snapshot, share));
    let works = works.map(|share| model.names.shown(&share.name));
    let works: Vec<&str> = works.take(4).collect();
    if !works.is_empty() {
        parts.push(format!("now {}", works.join(", ")));
    }
    let mut counted = snapshot.counted.iter();
    if let Some(counted) = counted.find(|one| one.device == row.uuid) {
        if let Some(p99) = counted.handoffs.quantile(990) {
            parts.push(format!("handoff p99 {}", within(p99)));
        }
        let idle = counted.idle_capped_ns + counted.idle_held_ns;
        if idle > 0 {
            parts.push(format!("idle while wanted {} in all", bound(idle)));
        }
    }
    parts
}

/// Whether a tenant is at work on a device. A tenant alone there is free whether it works or
/// not.
fn works_now(snapshot: &Snapshot, share: &ShareRow) -> bool {
    let (name, device) = (share.name.as_str(), share.device);
    match share.state {
        ShareState::Holding { .. } | ShareState::Sharing { .. } | ShareState::Yielding { .. } => {
            true
        }
        ShareState::Free => {
            let mut rows = snapshot.tenants.iter();
            let row = rows.find(|row| row.name == name && row.device == device);
            let is_idle = |state: &ProcessState| matches!(state, ProcessState::Idle { .. });
            let works = row.is_some_and(|row| row.processes.iter().any(|one| !is_idle(&one.state)));
            let place = snapshot.place(name, device).map(|own| own.place);
            works && place.is_none_or(|place| place == Place::In)
        }
        _ => false,
    }
}

/// Memory of a device: in use, promised and not in use, free.
struct Memory {
    used: u64,
    promised: u64,
    capacity: u64,
    /// The same in numbers.
    text: String,
}

impl Memory {
    fn of(snapshot: &Snapshot, row: &DeviceRow) -> Self {
        let own = snapshot.tenants.iter();
        let own = own.filter(|tenant| tenant.device == row.uuid);
        let away = snapshot.residency.iter();
        let away = away.filter(|one| one.device == row.uuid);
        let away: u64 = away.map(|one| one.away).sum();
        let excess = snapshot.excess_on(row.uuid);
        let others = row.overhead + row.limbo + row.unmanaged + excess;
        let charged = own.clone().map(|tenant| tenant.charged).sum::<u64>();
        // Of managed memory more may be charged than the device has.
        let charged = charged.saturating_sub(away).min(row.granted);
        // Guaranteed memory is promised, whether it is granted yet or not.
        let kept = own.map(|one| one.request.saturating_sub(one.grant));
        let promised = row.granted + kept.sum::<u64>() + others;
        let used = charged + others;
        let [in_use, held, all] = [used, promised, row.capacity].map(bytes);
        let mut text = format!("used {in_use} promised {held} of {all}");
        for (name, amount) in [
            ("dead", row.limbo),
            ("unmanaged", row.unmanaged),
            ("excess", excess),
        ] {
            if amount > 0 {
                text.push_str(&format!("  {name} {}", bytes(amount)));
            }
        }
        Self {
            used,
            promised,
            capacity: row.capacity,
            text,
        }
    }

    /// As a bar of this width, without its brackets.
    fn bar(&self, wide: usize) -> String {
        let part = |bytes: u64| {
            let part = u128::from(bytes) * wide as u128 / u128::from(self.capacity.max(1));
            usize::try_from(part).unwrap_or(wide).min(wide)
        };
        let (used, filled) = (part(self.used), part(self.promised));
        format!(
            "[{}{}{}]",
            "#".repeat(used.min(filled)),
            "=".repeat(filled.saturating_sub(used)),
            ".".repeat(wide - filled)
        )
    }
}

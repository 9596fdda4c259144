//! Limbo: bytes of a process that is dead, which the driver has not given back yet.
//!
//! The kernel frees a dead process's slot lock at once; the driver may take longer to free its
//! memory. The process's bytes count until NVML no longer lists it with memory on the device. NVML
//! is asked only when a process died with charges. It may be unavailable, or list pids of another
//! namespace (its list then shows none of our live processes). In both cases the bytes count as
//! freed: a late out-of-memory from the driver is better than a quota that is never released.
//!
//! A process whose slot lock is gone though it has not ended has executed another program. NVML
//! lists that one under the same pid, so being listed keeps the bytes only for [`AFTER_EXEC`].

use std::time::Duration;

use gpushare_protocol::page::{Page, UNIT};

use super::join::Membership;
use super::lock;
use super::nvml::{Listed, Watch};
use super::process::{self, Now};
use super::slots::{self, Dead};
use crate::driver::captures;
use crate::session::Deadline;

/// Longest that a call waits for dead processes' bytes. Drivers need milliseconds, for very large
/// processes a second.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest that a call waits for the bytes of a process that has executed another program, where
/// NVML lists its pid. The kernel has closed all files of the program before: the wait is for
/// a driver that frees later.
const AFTER_EXEC: Duration = Duration::from_secs(2);

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// A charge that did not fit, in units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Short {
    pub(super) device_index: usize,
    /// The limit; a request above it never fits.
    pub(super) limit: u64,
    /// The charges of all processes.
    pub(super) charged: u64,
    /// This process's part of those charges.
    pub(super) own: u64,
    /// The requested units.
    pub(super) units: u32,
}

impl Short {
    /// Whether it would fit if other processes held nothing: one of them may have died, which only
    /// the daemon knows.
    pub(super) fn may_be_the_deads(&self) -> bool {
        self.own + u64::from(self.units) <= self.limit
    }
}

/// Gives back a dead process's memory on a device, as far as the driver has freed it. Returns
/// whether there was any. The tenant's lock is waited for as long as `patience`.
pub(crate) fn settle(
    member: &Membership,
    device_index: usize,
    dead: &[Dead],
    patience: Duration,
) -> bool {
    settle_by(
        member,
        device_index,
        dead,
        Watch::start().as_ref(),
        Duration::ZERO,
        patience,
    )
}

/// The same where the call has waited for them as long as `waited`.
fn settle_by(
    member: &Membership,
    device_index: usize,
    dead: &[Dead],
    watch: Option<&Watch>,
    waited: Duration,
    patience: Duration,
) -> bool {
    let Some(uuid) = member
        .page
        .devices
        .get(device_index)
        .and_then(|device| device.uuid())
    else {
        return false;
    };
    let listed = watch.and_then(|watch| watch.processes(&uuid));
    let living = member.living(device_index);
    let gone: Vec<&Dead> = dead
        .iter()
        .filter(|dead| {
            !listed
                .as_deref()
                .is_some_and(|list| holds(list, dead, &living, waited))
        })
        .collect();
    tracing::debug!(
        dead = dead.len(),
        gone = gone.len(),
        "processes died with memory charged"
    );
    if gone.is_empty() {
        return false;
    }
    let Ok(_held) = lock::take_within(&member.backend, &member.threads, patience) else {
        return false;
    };
    gone.into_iter()
        .for_each(|dead| member.reap(dead, device_index));
    true
}

/// Settles the memory of dead processes on all devices; for a process that joins.
pub(crate) fn settle_all(member: &Membership) {
    for device_index in 0..member.page.devices.len() {
        let dead = member.dead(device_index);
        if !dead.is_empty() {
            settle(member, device_index, &dead, lock::PATIENCE);
        }
    }
}

/// Waits until dead processes' memory makes room for the refused request, as long as the call and
/// its thread may.
/// Returns `true` if it is worth asking again.
pub(super) fn wait(member: &Membership, short: &Short, call: &Deadline) -> bool {
    let Short {
        device_index,
        limit,
        charged,
        units,
        ..
    } = *short;
    let mut watch = None;
    loop {
        let dead = member.dead(device_index);
        let line = |dead: &Dead| member.page.line(dead.slot, device_index);
        let theirs: u64 = dead
            .iter()
            .filter_map(line)
            .map(|line| u64::from(line.word.load().charged))
            .sum();
        if theirs == 0 || charged.saturating_sub(theirs) + u64::from(units) > limit {
            return false;
        }
        let watch = watch.get_or_insert_with(Watch::start);
        let patience = member.backend.lock_patience(call);
        // Of the whole call: this is called again for each of the dead that is settled.
        let waited = call.began().elapsed();
        if settle_by(
            member,
            device_index,
            &dead,
            watch.as_ref(),
            waited,
            patience,
        ) {
            return true;
        }
        if call.left_of(PATIENCE).is_zero() || !captures::may_wait() {
            tracing::info!(
                bytes = theirs * UNIT,
                "refused for the sake of dead processes' memory"
            );
            return false;
        }
        crate::guest::frames::sleep(PAUSE);
    }
}

/// The dead whose memory no device has any more, or that cannot be known, in a page of which this
/// process has no row. NVML is started by `start`, where there are dead with charges.
pub(super) fn gone(
    page: &Page,
    is_alive: impl Fn(usize) -> bool,
    start: impl Fn() -> Option<Watch>,
) -> Vec<Dead> {
    let (living, mut dead): (Vec<usize>, Vec<usize>) =
        slots::taken(page).partition(|slot| is_alive(*slot));
    let mut watch = None;
    for (device_index, device) in page.devices.iter().enumerate() {
        let charged = |slot: &usize| slots::is_charged(page, *slot, device_index);
        let listed = device
            .uuid()
            .filter(|_| dead.iter().any(charged))
            .and_then(|uuid| watch.get_or_insert_with(&start).as_ref()?.processes(&uuid));
        let Some(list) = listed else { continue };
        let pids: Vec<u32> = living
            .iter()
            .filter(|slot| charged(slot))
            .map(|slot| slots::owner(page, *slot).identity.pid)
            .chain([std::process::id()])
            .collect();
        dead.retain(|slot| {
            !charged(slot) || !holds(&list, &slots::owner(page, *slot), &pids, AFTER_EXEC)
        });
    }
    let owner = |slot| slots::owner(page, slot);
    dead.into_iter().map(owner).collect()
}

/// Whether the list shows that the driver still holds memory for a dead process, for which a call
/// has waited so long.
fn holds(list: &[Listed], dead: &Dead, living: &[u32], waited: Duration) -> bool {
    let ours = dead.namespace == process::namespace()
        && (process::in_first_namespace()
            || living
                .iter()
                .any(|pid| list.iter().any(|listed| listed.pid == *pid)));
    let has_it = || match process::now(dead.identity) {
        Now::Ended => true,
        Now::Another => false,
        Now::Same => waited < AFTER_EXEC,
    };
    ours && list
        .iter()
        .any(|listed| listed.pid == dead.identity.pid && listed.bytes > 0)
        && has_it()
}

#[cfg(test)]
mod tests {
    use super::super::process::{Identity, namespace, this};
    use super::*;
    use std::process::Command;

    const BYTES: u64 = 1 << 20;

    #[test]
    fn a_listed_process_holds_its_memory_as_long_as_it_may_be_the_dead_one() {
        let mut child = Command::new("true").spawn().unwrap();
        // It is not reaped yet, so no other process has its pid.
        let ended = process::look_up(child.id()).unwrap().0;
        while process::now(ended) == Now::Same {
            std::thread::yield_now();
        }
        let (me, here) = (this(), namespace());
        let another = Identity {
            start: me.start + 100,
            ..me
        };
        let late = AFTER_EXEC;
        let soon = AFTER_EXEC.saturating_sub(Duration::from_millis(1));
        for (what, identity, namespace, bytes, waited, expected) in [
            ("has ended", ended, here, BYTES, PATIENCE, true),
            ("has ended and has nothing", ended, here, 0, soon, false),
            ("has another namespace", ended, here + 1, BYTES, soon, false),
            ("has executed", me, here, BYTES, soon, true),
            ("has executed long ago", me, here, BYTES, late, false),
            (
                "has another's pid",
                another,
                here,
                BYTES,
                Duration::ZERO,
                false,
            ),
        ] {
            let (slot, generation) = (0, 1);
            let dead = Dead {
                slot,
                generation,
                identity,
                namespace,
            };
            let of = |pid, bytes| Listed { pid, bytes };
            let list = [of(identity.pid, bytes), of(me.pid, BYTES)];
            assert_eq!(holds(&list, &dead, &[me.pid], waited), expected, "{what}");
            let others = [of(u32::MAX, BYTES), of(u32::MAX - 1, BYTES)];
            assert!(!holds(&others, &dead, &[u32::MAX], waited), "{what}");
        }
        child.wait().unwrap();
    }
}

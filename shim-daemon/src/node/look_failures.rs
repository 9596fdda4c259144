//! Looks at devices that fail: which failures an event tells. They come once a second for as long
//! as the fault lasts, and the daemon keeps 1,024 events of all kinds.

use std::collections::BTreeSet;

use gpushare_core::{DeviceId, Nanos};

use super::Node;
use super::looks::SLOW;
use crate::devices::Devices;

/// So many looks that work, one after the other, end a spell of failures: a minute, mostly. A
/// device that works now and then does not begin a new one each time.
const WORK: u32 = 60;
/// The most texts that are told in one spell.
const TEXTS: usize = 4;

/// A device's spell of failures.
#[derive(Debug, Default)]
pub(super) struct Failures {
    told: BTreeSet<String>,
    /// Looks that worked since the last failure.
    worked: u32,
}

impl Failures {
    /// A look failed. Returns whether that is told: the first time, and another text.
    pub(super) fn failed(&mut self, why: &str) -> bool {
        self.worked = 0;
        self.told.len() < TEXTS && self.told.insert(why.to_owned())
    }

    /// A look worked. Returns whether it is told that the spell is over.
    pub(super) fn worked(&mut self) -> bool {
        if self.told.is_empty() {
            return false;
        }
        self.worked += 1;
        let is_over = self.worked >= WORK;
        if is_over {
            *self = Self::default();
        }
        is_over
    }
}

impl Node {
    /// What these devices say of themselves beside their list: the driver's version, and which do
    /// not answer from the start. Those have no place among the node's devices, so that only an
    /// event can tell of them.
    pub fn is_on(&mut self, devices: &mut dyn Devices) {
        self.set_driver_version(devices.driver_version());
        for why in devices.silent() {
            let text = format!("{why}; it is not served. Restart the daemon once it is back");
            self.event("lost", None, None, text);
        }
    }

    /// A look at a device failed.
    pub(super) fn look_failed(&mut self, device: usize, kind: &'static str, why: String) {
        self.counted.look_failed(device);
        if self.looks.failures(device).failed(&why) {
            self.event(kind, None, Some(DeviceId(device as u64)), why);
        }
    }

    /// The device that is asked now, by its index, and since when, as the thread that asks all of
    /// them says. `None`: none is.
    pub fn asks(&mut self, device: Option<(usize, Nanos)>) {
        self.looks.ask(device);
    }

    /// Once a second: a device that does not answer counts as a look that failed each time. What
    /// was known of all devices is out of date: they are asked one after the other.
    pub(super) fn mind_slow_look(&mut self, now: Nanos) {
        let Some(hangs) = self.looks.hangs(now) else {
            return;
        };
        let others = (0..self.devices.len()).filter(|device| *device != hangs);
        let mut is_alone = true;
        for other in others {
            is_alone = false;
            self.counted.is_out_of_date(other);
        }
        let more = match is_alone {
            true => "",
            false => "; looks at the other GPUs wait for it",
        };
        let text = format!("NVML has not answered for {}{more}", SLOW.human());
        self.look_failed(hangs, "look-slow", text);
    }

    /// A look at a device worked.
    pub(super) fn look_worked(&mut self, device: usize) {
        if self.looks.failures(device).worked() {
            let text = format!("{WORK} looks after each other worked: NVML answers again");
            self.event("look-works", None, Some(DeviceId(device as u64)), text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_once_for_each_of_a_few_texts() {
        let mut failures = Failures::default();
        let told = |failures: &mut Failures| {
            let texts = (0..1000).map(|at| format!("fault {}", at % 10));
            texts.filter(|text| failures.failed(text)).count()
        };
        assert_eq!(told(&mut failures), 4);
        assert_eq!(told(&mut failures), 0);
    }

    #[test]
    fn a_spell_ends_once_and_only_after_many_looks_that_work() {
        let mut failures = Failures::default();
        assert!(!failures.worked(), "none has failed");
        assert!(failures.failed("a"));
        for _ in 0..100 {
            assert!((1..WORK).all(|_| !failures.worked()));
            assert!(!failures.failed("a"), "it is the same spell");
        }
        let ends = (0..1000).filter(|_| failures.worked()).count();
        assert_eq!(ends, 1);
        assert!(failures.failed("a"));
    }
}

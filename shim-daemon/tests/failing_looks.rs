//! Looks at a device that fail or do not end: what is told of them, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::VecDeque;

use crate::container_node::NOW;
use crate::support::{FakeDevices, GPU, SECOND};
use gpushare_core::Nanos;
use gpushare_protocol::wire::{Control, ControlReply, Cursor, Listing, MetricsRow, Rows};
use gpushared::devices::{Devices as _, Health, Look, LookError};
use gpushared::node::{ConnId, Effect, Node, Settings};

/// A node, and the kinds of its events.
struct Watched {
    node: Node,
    now: Nanos,
    /// The devices of looks that have begun and not ended: they are asked one after the other.
    begun: VecDeque<usize>,
    /// Since when the first of them is asked.
    since: Nanos,
    kinds: Vec<String>,
    /// The devices that were told not to answer.
    slow: Vec<[u8; 16]>,
}

impl Watched {
    fn new() -> Self {
        Self::of(&FakeDevices::default())
    }

    fn of(devices: &FakeDevices) -> Self {
        let devices = devices.clone().list().unwrap();
        let mut watched = Self {
            node: Node::new(&Settings::default(), devices, 1, NOW, false),
            now: NOW,
            begun: VecDeque::new(),
            since: NOW,
            kinds: Vec::new(),
            slow: Vec::new(),
        };
        watched.drain();
        watched
    }

    fn drain(&mut self) -> Option<ControlReply> {
        let mut told = None;
        while let Some(effect) = self.node.poll_effect() {
            match effect {
                Effect::Look { device } => {
                    if self.begun.is_empty() {
                        self.since = self.now;
                    }
                    self.begun.push_back(device);
                }
                Effect::Event { record, .. } => {
                    if record.kind == "look-slow" {
                        self.slow
                            .extend(record.device.as_ref().map(|device| device.uuid));
                    }
                    self.kinds.push(record.kind.clone());
                }
                Effect::Command { reply, .. } => told = Some(reply),
                _ => {}
            }
        }
        told
    }

    /// A second passes.
    fn second(&mut self) {
        self.now = self.now + Nanos::secs(1);
        let asked = self.begun.front().map(|device| (*device, self.since));
        self.node.asks(asked);
        self.node.tick(self.now);
        self.drain();
    }

    /// The looks that have begun end like this.
    fn looks_end(&mut self, look: &Result<Look, LookError>) {
        while !self.begun.is_empty() {
            self.look_ends(look);
        }
    }

    /// The first of them ends, and the next one begins.
    fn look_ends(&mut self, look: &Result<Look, LookError>) {
        let device = self.begun.pop_front().unwrap();
        self.since = self.now;
        self.node.looked(self.now, device, self.now, look.clone());
        self.drain();
    }

    fn seconds(&mut self, many: usize, look: &Result<Look, LookError>) {
        for _ in 0..many {
            self.second();
            self.looks_end(look);
        }
    }

    /// How many events of a kind there were.
    fn told(&self, kind: &str) -> usize {
        self.kinds.iter().filter(|known| *known == kind).count()
    }

    fn list(&mut self, of: Listing) -> Rows {
        let from = Cursor::default();
        let list = Control::Page { of, from };
        self.node.command(self.now, ConnId(1), 1, &list);
        match self.drain() {
            Some(ControlReply::Page { rows, .. }) => rows,
            other => panic!("{other:?}"),
        }
    }

    /// Devices that have a row of what NVML shows.
    fn health(&mut self) -> usize {
        match self.list(Listing::Health) {
            Rows::Health(rows) => rows.len(),
            other => panic!("{other:?}"),
        }
    }

    /// Looks that failed, as metrics tell.
    fn failures(&mut self) -> u64 {
        self.failures_of(GPU)
    }

    fn failures_of(&mut self, uuid: [u8; 16]) -> u64 {
        let Rows::Metrics(rows) = self.list(Listing::Metrics) else {
            panic!("metrics")
        };
        let device = rows.into_iter().find_map(|row| match row {
            MetricsRow::Device(row) if row.device == uuid => Some(row.look_failures),
            _ => None,
        });
        device.unwrap()
    }
}

fn works() -> Result<Look, LookError> {
    FakeDevices::default().look(0)
}

fn fails(why: &str) -> Result<Look, LookError> {
    Err(LookError::Failed(why.to_owned()))
}

#[test]
fn looks_that_keep_failing_are_told_once_and_counted_each() {
    let mut watched = Watched::new();
    watched.seconds(100, &fails("unknown error"));
    assert_eq!(watched.told("look-failed"), 1);
    assert!(watched.failures() >= 100);
    watched.seconds(1, &fails("no permission"));
    assert_eq!(watched.told("look-failed"), 2, "another reason");
}

#[test]
fn the_end_of_failing_looks_is_told_once() {
    let mut watched = Watched::new();
    watched.seconds(5, &fails("unknown error"));
    watched.seconds(5, &works());
    assert_eq!(watched.told("look-works"), 0, "it may fail again");
    watched.seconds(200, &works());
    assert_eq!(watched.told("look-works"), 1);
}

#[test]
fn looks_that_work_tell_nothing() {
    let mut watched = Watched::new();
    watched.seconds(100, &works());
    assert_eq!(watched.told("look-failed") + watched.told("look-works"), 0);
    assert_eq!(watched.failures(), 0);
}

#[test]
fn a_look_that_does_not_end_is_told_once_and_counted_each_second() {
    let mut watched = Watched::new();
    watched.seconds(3, &works());
    (0..9).for_each(|_| watched.second());
    assert_eq!((watched.told("look-slow"), watched.failures()), (0, 0));
    (0..100).for_each(|_| watched.second());
    assert_eq!(watched.told("look-slow"), 1);
    assert!(watched.failures() >= 98);
    watched.looks_end(&works());
    let failures = watched.failures();
    watched.seconds(100, &works());
    assert_eq!(watched.failures(), failures);
    assert_eq!(watched.told("look-works"), 1);
}

#[test]
fn a_device_whose_look_does_not_end_has_no_health() {
    let mut watched = Watched::new();
    let mut look = works().unwrap();
    look.health = Some(Health::default());
    watched.seconds(1, &Ok(look));
    assert_eq!(watched.health(), 1);
    (0..12).for_each(|_| watched.second());
    assert_eq!(watched.health(), 0);
}

/// Two devices, of which the second one answers no more.
fn second_hangs() -> Watched {
    let devices = FakeDevices::two();
    let mut watched = Watched::of(&devices);
    let mut look = works().unwrap();
    look.health = Some(Health::default());
    watched.seconds(3, &Ok(look));
    watched.second();
    watched.look_ends(&works());
    watched
}

#[test]
fn of_two_devices_only_the_one_that_hangs_is_told_and_counted() {
    let mut watched = second_hangs();
    (0..100).for_each(|_| watched.second());
    assert_eq!(watched.slow, [SECOND]);
    assert_eq!(watched.failures(), 0, "it waits for the other");
    assert!(watched.failures_of(SECOND) >= 90);
    assert_eq!(watched.health(), 0, "that of both is out of date");
}

#[test]
fn a_device_that_is_asked_late_has_its_own_ten_seconds() {
    let mut watched = second_hangs();
    (0..8).for_each(|_| watched.second());
    // The second answers; now the first one is asked, which has waited as long.
    watched.look_ends(&works());
    (0..9).for_each(|_| watched.second());
    assert_eq!(watched.slow, [] as [[u8; 16]; 0]);
    (0..2).for_each(|_| watched.second());
    assert_eq!(watched.slow, [GPU]);
}

//! Looks at a device that fail or do not end: what is told of them, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::container_node::NOW;
use crate::support::FakeDevices;
use gpushare_core::Nanos;
use gpushare_protocol::wire::{Control, ControlReply, Cursor, Listing, MetricsRow, Rows};
use gpushared::devices::{Devices as _, Health, Look, LookError};
use gpushared::node::{ConnId, Effect, Node, Settings};

/// A node, and the kinds of its events.
struct Watched {
    node: Node,
    now: Nanos,
    /// Looks that have begun and not ended.
    begun: usize,
    kinds: Vec<String>,
}

impl Watched {
    fn new() -> Self {
        let devices = FakeDevices::default().list().unwrap();
        let mut watched = Self {
            node: Node::new(&Settings::default(), devices, 1, NOW, false),
            now: NOW,
            begun: 0,
            kinds: Vec::new(),
        };
        watched.drain();
        watched
    }

    fn drain(&mut self) -> Option<ControlReply> {
        let mut told = None;
        while let Some(effect) = self.node.poll_effect() {
            match effect {
                Effect::Look { .. } => self.begun += 1,
                Effect::Event { record, .. } => self.kinds.push(record.kind.clone()),
                Effect::Command { reply, .. } => told = Some(reply),
                _ => {}
            }
        }
        told
    }

    /// A second passes.
    fn second(&mut self) {
        self.now = self.now + Nanos::secs(1);
        self.node.tick(self.now);
        self.drain();
    }

    /// The looks that have begun end like this.
    fn looks_end(&mut self, look: &Result<Look, LookError>) {
        while self.begun > 0 {
            self.begun -= 1;
            self.node.looked(self.now, 0, self.now, look.clone());
            self.drain();
        }
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
        let Rows::Metrics(rows) = self.list(Listing::Metrics) else {
            panic!("metrics")
        };
        let device = rows.into_iter().find_map(|row| match row {
            MetricsRow::Device(row) => Some(row.look_failures),
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

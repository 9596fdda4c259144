//! Events with their facts: what the daemon writes to its journal, and what it sends to a command
//! that follows events.

use serde::{Deserialize, Serialize};

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecord {
    /// The daemon that saw it: another number at every start.
    pub instance: u64,
    /// Its number among that daemon's events, from 1.
    pub number: u64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// A stable short name, such as `refused` or `ended`.
    pub kind: String,
    /// The tenant it is about, if it is about one.
    pub tenant: Option<String>,
    /// The device it is about, if it is about one.
    pub device: Option<EventDevice>,
    /// One sentence with the numbers.
    pub text: String,
    /// The numbers, each under a name that says its unit.
    pub facts: Vec<(String, Fact)>,
}

/// Kinds of events that say that the node needs a person, or has ended a program.
const GRAVE: [&str; 21] = [
    "container-refused",
    "ended",
    "excess",
    "fence-failed",
    "file-refused",
    "host-failed",
    "journal-lost",
    "look-failed",
    "look-slow",
    "lost",
    "memory-lost",
    "no-return",
    "not-registered",
    "not-restored",
    "overdrawn",
    "spill-failed",
    "unenforced",
    "unmanaged",
    "unmanaged-ended",
    "unsaved",
    "will-not-yield",
];

/// Kinds of events that a tenant or its owner should know of. A program may cause them by its
/// ordinary work: an allocator that asks until it is refused, and then frees.
const NOTABLE: [&str; 4] = ["host-full", "overrun", "refused", "thrashing"];

/// A device as an event names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventDevice {
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Its place among the daemon's devices, from 0.
    pub index: u32,
}

/// A value of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Fact {
    /// An amount; its name says of what.
    Number(u64),
    /// A name or a reason.
    Word(String),
}

impl EventRecord {
    /// The number under a name.
    #[must_use]
    pub fn number_of(&self, name: &str) -> Option<u64> {
        match self.fact(name)? {
            Fact::Number(number) => Some(*number),
            Fact::Word(_) => None,
        }
    }

    /// The word under a name.
    #[must_use]
    pub fn word_of(&self, name: &str) -> Option<&str> {
        match self.fact(name)? {
            Fact::Word(word) => Some(word),
            Fact::Number(_) => None,
        }
    }

    fn fact(&self, name: &str) -> Option<&Fact> {
        let mut facts = self.facts.iter();
        facts.find_map(|(known, fact)| (known == name).then_some(fact))
    }

    /// Whether a person should look at it: a warning in the log.
    #[must_use]
    pub fn is_grave(&self) -> bool {
        GRAVE.contains(&&*self.kind)
    }

    /// Whether it stands out among the events of a page: it is grave, or told a tenant something
    /// unwelcome.
    #[must_use]
    pub fn is_notable(&self) -> bool {
        self.is_grave() || NOTABLE.contains(&&*self.kind)
    }
}

/// A tenant's status: also of one that waits for admission, which has no account yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantStatusRow {
    /// Its name.
    pub name: String,
    /// The user who owns it; `None` for a tenant of the machine.
    pub owner: Option<u32>,
    /// Milliseconds since it was admitted, or since it was registered while it waits.
    pub for_ms: u64,
    /// Why it waits for admission, with the numbers; `None` once it may run.
    pub queued: Option<String>,
    /// Its request and limit on each device.
    pub asks: Vec<AskedRow>,
}

/// A tenant's request and limit on a device. Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedRow {
    /// The device's UUID.
    pub device: [u8; 16],
    /// Bytes guaranteed.
    pub request: u64,
    /// Bytes at most.
    pub limit: u64,
}

//! An event as a line of the journal: JSON with documented keys.

use std::collections::BTreeMap;

use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::{EventDevice, EventRecord, Fact};
use serde::{Deserialize, Serialize};

/// The version of [`Line`]. It grows when a key changes its meaning, not when one is added.
pub const SCHEMA: u32 = 1;

/// An event as `gpushare events --json` prints it and the journal keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// The daemon that saw it, in hexadecimal digits; another at each of its starts.
    pub instance: String,
    /// Its number among that daemon's events.
    pub number: u64,
    /// A stable short name.
    pub kind: String,
    /// The tenant it is about, or null.
    pub tenant: Option<String>,
    /// The device's place among the daemon's devices, or null.
    pub gpu: Option<u32>,
    /// The device's UUID, or null.
    pub device: Option<String>,
    /// One sentence with the numbers.
    pub text: String,
    /// The numbers by name; a name ends in its unit.
    pub facts: BTreeMap<String, Value>,
}

/// A value of [`Line::facts`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// An amount.
    Number(u64),
    /// A name or a reason.
    Word(String),
}

impl From<&EventRecord> for Line {
    fn from(record: &EventRecord) -> Self {
        let facts = record.facts.iter().map(|(name, fact)| {
            let value = match fact {
                Fact::Number(number) => Value::Number(*number),
                Fact::Word(word) => Value::Word(word.clone()),
                // A later daemon's.
                other => Value::Word(format!("{other:?}")),
            };
            (name.clone(), value)
        });
        Self {
            schema: SCHEMA,
            at_ms: record.at_ms,
            instance: format!("{:x}", record.instance),
            number: record.number,
            kind: record.kind.clone(),
            tenant: record.tenant.clone(),
            gpu: record
                .device
                .map(|device| device.index)
                .filter(|index| *index != u32::MAX),
            device: record.device.map(|device| Uuid(device.uuid).to_string()),
            text: record.text.clone(),
            facts: facts.collect(),
        }
    }
}

impl Line {
    /// The event; `None` if a number of it is none.
    #[must_use]
    pub fn record(self) -> Option<EventRecord> {
        let device = match self.device {
            None => None,
            Some(text) => Some(EventDevice {
                uuid: Uuid::parse(&text, '-')?.0,
                index: self.gpu.unwrap_or(u32::MAX),
            }),
        };
        let facts = self.facts.into_iter().map(|(name, value)| {
            let fact = match value {
                Value::Number(number) => Fact::Number(number),
                Value::Word(word) => Fact::Word(word),
            };
            (name, fact)
        });
        Some(EventRecord {
            instance: u64::from_str_radix(&self.instance, 16).ok()?,
            number: self.number,
            at_ms: self.at_ms,
            kind: self.kind,
            tenant: self.tenant,
            device,
            text: self.text,
            facts: facts.collect(),
        })
    }

    /// As one line, without its end.
    #[must_use]
    pub fn json(&self) -> String {
        // Only maps with keys that are no text, and writers that fail, make this fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads one line.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_comes_back_from_its_line_as_it_was() {
        let record = EventRecord {
            instance: u64::MAX,
            number: 7,
            at_ms: 1_700_000_000_123,
            kind: "refused".to_owned(),
            tenant: Some("web \"é\"\n".to_owned()),
            device: Some(EventDevice {
                uuid: [0xab; 16],
                index: 1,
            }),
            text: "two\nlines".to_owned(),
            facts: vec![
                ("a_bytes".to_owned(), Fact::Number(u64::MAX)),
                ("by".to_owned(), Fact::Word("x".to_owned())),
            ],
        };
        let text = Line::from(&record).json();
        assert!(!text.contains('\n'), "{text}");
        assert_eq!(
            Line::parse(&text).expect("a line").record(),
            Some(record.clone())
        );
        let nobodys = EventRecord {
            tenant: None,
            device: None,
            facts: vec![],
            ..record
        };
        let line = Line::from(&nobodys);
        assert_eq!(line.clone().record(), Some(nobodys));
        assert!(
            line.json()
                .contains(r#""tenant":null,"gpu":null,"device":null"#)
        );
    }

    #[test]
    fn a_later_versions_further_keys_do_not_matter() {
        let text = r#"{"schema":1,"at_ms":1,"instance":"f","number":2,"kind":"k","tenant":null,
            "gpu":null,"device":null,"text":"t","facts":{},"more":[1]}"#;
        let record = Line::parse(text).and_then(Line::record).expect("a record");
        assert_eq!((record.instance, record.number), (15, 2));
        assert_eq!(Line::parse("{\"schema\":1,\"at_ms\":1"), None);
    }
}

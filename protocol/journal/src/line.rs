//! An event as a line of the journal: JSON with documented keys.

use std::collections::BTreeMap;

use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::{EventDevice, EventRecord, Fact};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

/// The version of a line's form. It grows when a key changes its meaning, not when one is added.
const SCHEMA: u32 = 1;

/// An event as `gpushare events --json` prints it and the journal keeps it, read back.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Line {
    #[serde(default = "first")]
    schema: u32,
    at_ms: u64,
    instance: String,
    number: u64,
    kind: String,
    tenant: Option<String>,
    gpu: Option<u32>,
    device: Option<String>,
    text: String,
    facts: BTreeMap<String, Value>,
}

/// The version of a line that says none.
fn first() -> u32 {
    1
}

/// A value of [`Line::facts`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
enum Value {
    Number(u64),
    Word(String),
}

/// The same on its way out.
#[derive(Serialize)]
struct Written<'a> {
    schema: u32,
    at_ms: u64,
    instance: String,
    number: u64,
    kind: &'a str,
    tenant: Option<&'a str>,
    gpu: Option<u32>,
    device: Option<String>,
    text: &'a str,
    #[serde(serialize_with = "facts")]
    facts: &'a [(String, Fact)],
}

fn facts<S: Serializer>(facts: &[(String, Fact)], out: S) -> Result<S::Ok, S::Error> {
    let mut map = out.serialize_map(Some(facts.len()))?;
    for (name, fact) in facts {
        match fact {
            Fact::Number(number) => map.serialize_entry(name, number)?,
            Fact::Word(word) => map.serialize_entry(name, word)?,
            // None: a record with a fact of another kind cannot be read.
            other => map.serialize_entry(name, &format!("{other:?}"))?,
        }
    }
    map.end()
}

/// Appends an event as one line, without its end.
pub fn write_json(record: &EventRecord, out: &mut Vec<u8>) {
    let device = record.device;
    let line = Written {
        schema: SCHEMA,
        at_ms: record.at_ms,
        instance: format!("{:x}", record.instance),
        number: record.number,
        kind: &record.kind,
        tenant: record.tenant.as_deref(),
        gpu: device
            .map(|device| device.index)
            .filter(|index| *index != u32::MAX),
        device: device.map(|device| Uuid(device.uuid).to_string()),
        text: &record.text,
        facts: &record.facts,
    };
    // Memory takes all, and nothing in a line is a map with keys that are no text.
    let _ = serde_json::to_writer(out, &line);
}

/// An event as one line, without its end.
#[must_use]
pub fn json(record: &EventRecord) -> String {
    let mut out = Vec::new();
    write_json(record, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

impl Line {
    /// The event; `None` if a number of it is none.
    pub(crate) fn record(self) -> Option<EventRecord> {
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

    /// Reads one line. `None`: it is torn, or of a later version, whose keys may mean something
    /// else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let line: Self = serde_json::from_str(text).ok()?;
        (line.schema <= SCHEMA).then_some(line)
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
        let text = json(&record);
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
        let text = json(&nobodys);
        assert_eq!(Line::parse(&text).and_then(Line::record), Some(nobodys));
        assert!(text.contains(r#""tenant":null,"gpu":null,"device":null"#));
    }

    #[test]
    fn a_later_versions_further_keys_do_not_matter() {
        let text = r#"{"schema":1,"at_ms":1,"instance":"f","number":2,"kind":"k","tenant":null,
            "gpu":null,"device":null,"text":"t","facts":{},"more":[1]}"#;
        let record = Line::parse(text).and_then(Line::record).expect("a record");
        assert_eq!((record.instance, record.number), (15, 2));
        assert_eq!(Line::parse("{\"schema\":1,\"at_ms\":1"), None);
    }

    #[test]
    fn a_line_of_a_later_schema_is_not_read_as_one_of_this() {
        let of = |schema: &str| {
            let rest = r#""at_ms":1,"instance":"f","number":2,"kind":"k","tenant":null,
                "gpu":null,"device":null,"text":"t","facts":{}}"#;
            Line::parse(&format!("{{{schema}{rest}")).is_some()
        };
        assert!(of(r#""schema":1,"#) && of(""));
        assert!(!of(r#""schema":2,"#));
    }
}

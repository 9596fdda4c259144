//! The kinds of events that `--kind` takes.

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};
use gpushare_protocol::wire::EventRecord;
use std::ffi::OsStr;

/// Those of this build.
pub(crate) const KINDS: [&str; EventRecord::KINDS.len()] = EventRecord::KINDS;

/// The most letters that are wrong in a kind that is named in place of an unknown one.
const SLIPS: usize = 2;

/// A kind of events. An unknown one is refused with those that may be meant, not with all of them.
#[derive(Clone, Debug)]
pub(crate) struct Kind;

impl TypedValueParser for Kind {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        _: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, Error> {
        let told = value.to_string_lossy();
        if KINDS.contains(&&*told) {
            return Ok(told.into_owned());
        }
        let meant = match nearest(&told).join(" or ") {
            meant if meant.is_empty() => ".".to_owned(),
            meant => format!("; did you mean {meant}?"),
        };
        let text = format!(
            "invalid value '{told}' for '--kind <KIND>': there is no such kind of event{meant} All are in docs/OPERATIONS.md, under Events\n"
        );
        Err(Error::raw(ErrorKind::InvalidValue, text).with_cmd(command))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(KINDS.into_iter().map(PossibleValue::new)))
    }
}

/// The kinds that begin with a word, or with which it begins; else those with the fewest slips.
fn nearest(word: &str) -> Vec<&'static str> {
    let long = |text: &str| text.len() > SLIPS;
    let begins = |kind: &&str| kind.starts_with(word) || word.starts_with(kind);
    let all = KINDS.into_iter();
    let same: Vec<&str> = all.filter(begins).filter(|_| long(word)).collect();
    if !same.is_empty() {
        return same;
    }
    let slips = KINDS.map(|kind| slips(word, kind));
    let least = slips.iter().copied().min().unwrap_or(usize::MAX);
    let all = KINDS.into_iter().zip(slips);
    let near = all.filter(|(_, slips)| *slips == least && least <= SLIPS);
    near.map(|(kind, _)| kind).collect()
}

/// How many letters have to be put in, left out or changed to make one word of the other.
fn slips(word: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in word.chars().enumerate() {
        let mut before = row[0];
        row[0] = at + 1;
        for (place, wanted) in other.iter().enumerate() {
            let changed = before + usize::from(letter != *wanted);
            before = row[place + 1];
            row[place + 1] = changed.min(before + 1).min(row[place] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::Parser as _;

    #[test]
    fn the_kinds_are_those_of_the_reference() {
        let page = include_str!("../../../docs/OPERATIONS.md");
        let table = page.split("| event | what it says |").nth(1).unwrap();
        let rows = table
            .lines()
            .skip(2)
            .take_while(|line| line.starts_with('|'));
        let first = |row: &str| row.split('|').nth(1).unwrap().to_owned();
        let told: Vec<String> = rows.map(first).collect();
        let told = told.join(",");
        let mut told: Vec<&str> = told.split('`').skip(1).step_by(2).collect();
        told.sort_unstable();
        assert_eq!(told, KINDS);
    }

    #[test]
    fn an_unknown_kind_is_refused_with_the_nearest_and_not_with_all() {
        let told = |kind: &str| {
            let parsed = Args::try_parse_from(["gpushare", "events", "--kind", kind]);
            parsed.unwrap_err().to_string()
        };
        for (kind, meant) in [
            ("refuse", "did you mean refused?"),
            ("refussed", "did you mean refused?"),
            ("host", "did you mean host-failed or host-full?"),
            ("memory_lost", "did you mean memory-lost?"),
        ] {
            let text = told(kind);
            assert!(text.contains(meant), "{text}");
            assert!(text.contains(kind) && text.len() < 400, "{text}");
        }
        for kind in ["", "x", "everything"] {
            let text = told(kind);
            assert!(!text.contains("did you mean"), "{text}");
            assert!(text.contains("no such kind"), "{text}");
        }
        for kind in KINDS {
            Args::try_parse_from(["gpushare", "events", "--kind", kind]).unwrap();
        }
    }
}

//! Names that another name was perhaps meant to be.

use crate::paths;

/// The one of our names that another was perhaps meant to be: one that differs in at most a third
/// of the letters after the prefix, or else the only one that has its letters or that it has.
pub(super) fn close<'a>(name: &str, prefix: &str, ours: &[&'a str]) -> Option<&'a str> {
    let own = name.strip_prefix(prefix).unwrap_or(name);
    if own == "NAME" {
        // As the flag is called.
        return Some(paths::TENANT);
    }
    let closest = ours.iter().min_by_key(|known| distance(name, known));
    let is_close = |known: &&&str| distance(name, known) <= own.len() / 3;
    if let Some(known) = closest.filter(is_close) {
        return Some(known);
    }
    let holds = |known: &&&str| {
        let known = known.strip_prefix(prefix).unwrap_or(known);
        !own.is_empty() && (known.contains(own) || own.contains(known))
    };
    let mut held = ours.iter().filter(holds);
    let only = held.next()?;
    held.next().is_none().then_some(*only)
}

/// How many letters have to be put in, left out or exchanged to make one name of the other.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.bytes().enumerate() {
        let mut before = row[0];
        row[0] = at + 1;
        for (place, wanted) in other.bytes().enumerate() {
            let same = before + usize::from(letter != wanted);
            before = row[place + 1];
            row[place + 1] = same.min(before + 1).min(row[place] + 1);
        }
    }
    row[other.len()]
}

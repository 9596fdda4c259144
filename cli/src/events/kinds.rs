//! The kinds of events that `--kind` takes.

use gpushare_protocol::wire::EventRecord;

/// Those of this build.
pub(crate) const KINDS: [&str; EventRecord::KINDS.len()] = EventRecord::KINDS;

#[cfg(test)]
mod tests {
    use super::*;

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
}

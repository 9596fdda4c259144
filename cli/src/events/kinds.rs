//! The kinds of events that `--kind` takes.

/// As in the table of events in docs/OPERATIONS.md.
pub(crate) const KINDS: [&str; 60] = [
    "active",
    "admitted",
    "attached",
    "awaited",
    "balanced",
    "did-not-leave",
    "ended",
    "ends-soon",
    "events-left-out",
    "excess",
    "fence",
    "fence-failed",
    "fence-foreign",
    "fence-off",
    "fetched",
    "file-refused",
    "gone",
    "host-failed",
    "host-full",
    "idle",
    "journal-lost",
    "lapsed",
    "leaving",
    "left",
    "left-less",
    "look-failed",
    "look-slow",
    "look-works",
    "lost",
    "memory-lost",
    "no-return",
    "not-registered",
    "not-restored",
    "overdrawn",
    "overrun",
    "queued",
    "refused",
    "resumed",
    "returned",
    "served",
    "set",
    "settled",
    "shared",
    "silent",
    "slow-return",
    "spared",
    "spill-failed",
    "spilled",
    "suspended",
    "thrashing",
    "unenforced",
    "ungated",
    "unmanaged",
    "unmanaged-ended",
    "unmanaged-spared",
    "unsaved",
    "unshared",
    "vacated",
    "waiting",
    "will-not-yield",
];

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

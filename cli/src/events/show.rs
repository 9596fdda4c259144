//! An event as a person reads it.

use crate::output::wrapped;
use crate::when;
use gpushare_protocol::wire::EventRecord;

/// Columns before the text.
const INDENT: usize = 22;

/// Local time, GPU, what happened to which tenant, and its sentence below where it does not fit
/// beside.
pub(super) fn line(record: &EventRecord, width: Option<usize>) -> String {
    let gpu = record.device.map(|device| device.index);
    let gpu = gpu.filter(|index| *index != u32::MAX);
    let gpu = gpu.map_or_else(|| "-".to_owned(), |index| index.to_string());
    let tenant = record.tenant.as_deref().unwrap_or("-");
    let head = format!(
        "{}  {gpu:>3}  {:<12} {tenant:<20}",
        when::local(record.at_ms),
        record.kind,
    );
    match width {
        None => format!("{head}  {}", record.text),
        Some(width) if head.len() + 2 + record.text.len() <= width => {
            format!("{head}  {}", record.text)
        }
        Some(width) => {
            let text = wrapped(&record.text, width.saturating_sub(INDENT).max(20));
            let indented = text.iter().map(|line| format!("\n{:INDENT$}{line}", ""));
            format!("{}{}", head.trim_end(), indented.collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_within_the_terminal() {
        let record = EventRecord {
            instance: 1,
            number: 1,
            at_ms: 0,
            kind: "refused".to_owned(),
            tenant: Some("web".to_owned()),
            device: None,
            text: "word ".repeat(60).trim().to_owned(),
            facts: Vec::new(),
        };
        let shown = line(&record, Some(100));
        assert!(shown.lines().all(|line| line.len() <= 100), "{shown}");
        assert_eq!(shown.matches("word").count(), 60);
        // Into a pipe it is one line.
        assert_eq!(line(&record, None).lines().count(), 1);
    }
}

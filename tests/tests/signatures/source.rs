//! Reads functions from our sources.

use std::fs;
use std::path::{Path, PathBuf};

use gpushare_tests::artefacts::repository;

/// The Rust files of a folder of the repository, sorted.
pub(crate) fn sources(folder: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![repository().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in
            fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// A file's text without comments.
pub(crate) fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a source file");
    text.lines()
        .map(|line| line.split("//").next().unwrap_or(""))
        .collect::<Vec<_>>()
        .join("\n")
}

/// A function as written in a source: its names and its parameters' types.
pub(crate) struct Written {
    pub(crate) names: Vec<String>,
    pub(crate) parameters: Vec<String>,
}

/// The items `fn cuName | cuTwin(…)`, `fn cuName twin cuTwin (d: DefaultStream; …)` and `fn
/// nvmlName(…)` of one file.
pub(crate) fn written(text: &str) -> Vec<Written> {
    let mut found = Vec::new();
    for rest in text.split("fn ").skip(1) {
        let Some(open) = rest.find('(') else { continue };
        let names: Vec<String> = rest[..open]
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .map(str::to_owned)
            .collect();
        let names: Vec<String> = names
            .into_iter()
            .filter(|name| !name.is_empty() && name != "twin")
            .collect();
        let ours = |name: &String| {
            let rest = name
                .strip_prefix("cu")
                .or_else(|| name.strip_prefix("nvml"));
            rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
        };
        if !names.is_empty() && names.iter().all(ours) {
            found.push(Written {
                names,
                parameters: parameters(&rest[open + 1..]),
            });
        }
    }
    found
}

/// The types between the parenthesis that was just opened and its end.
fn parameters(text: &str) -> Vec<String> {
    let (mut depth, mut parts, mut part) = (0_u32, Vec::new(), String::new());
    for c in text.chars() {
        match c {
            ')' if depth == 0 => break,
            '(' | '<' | '[' => depth += 1,
            ')' | '>' | ']' if !part.ends_with('-') => depth -= 1,
            // The text before a semicolon is the macro's own parameter.
            ';' if depth == 0 => {
                part.clear();
                continue;
            }
            ',' if depth == 0 => {
                parts.push(std::mem::take(&mut part));
                continue;
            }
            _ => {}
        }
        part.push(c);
    }
    parts.push(part);
    let typed = parts.iter().filter_map(|part| part.split_once(':'));
    typed
        .filter(|(_, rust)| rust.trim() != "DefaultStream")
        .map(|(_, rust)| rust.trim().to_owned())
        .collect()
}

//! Imports point down: the modules of each part below are listed in layers from top to bottom, and
//! no module names one of its own layer or of a layer above. Read from the sources as text: every
//! path that begins with `crate::`, `super::` or `self::`, but for comments, strings and tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

/// A part of the workspace: a crate's sources, a module in them (empty for the whole crate), and
/// the modules directly inside, from the top layer to the bottom one. `.` is the module's own file.
struct Part {
    sources: &'static str,
    module: &'static str,
    layers: &'static [&'static [&'static str]],
}

const CORE: &str = "shim-daemon/core/src";

const PARTS: &[Part] = &[
    Part {
        sources: "interposer/src",
        module: "",
        layers: &[
            &["."],
            &["resolve"],
            &["hooks"],
            &["entry"],
            &["residency"],
            &["gate", "holdings"],
            &["account"],
            &["session", "driver"],
            &["guest"],
        ],
    },
    Part {
        sources: "interposer/src",
        module: "driver::tracker",
        layers: &[
            &["."],
            &["marking"],
            &["captures"],
            &["place"],
            &["streams"],
            &["contexts"],
            &["last"],
            &["state"],
        ],
    },
    Part {
        sources: "interposer/pacing/src",
        module: "",
        layers: &[
            &["."],
            &[
                "cap", "follower", "looks", "mover", "report", "slices", "window",
            ],
            &["queue"],
            &["estimate", "ran"],
        ],
    },
    Part {
        sources: CORE,
        module: "",
        layers: &[
            &["."],
            &["world"],
            &["event", "decision"],
            &["ledger"],
            &["spec"],
            &[
                "lanes",
                "lease",
                "residency",
                "resolver",
                "timers",
                "overhead",
                "limbo",
                "room",
            ],
            &["part", "time", "ids"],
        ],
    },
    Part {
        sources: CORE,
        module: "lease",
        layers: &[
            &["."],
            &["bands"],
            &["device"],
            &["shared", "turns"],
            &["roster"],
            &["seat"],
            &["debts", "account", "members", "view"],
            &["promise", "input", "work"],
            &["page", "terms"],
            &["arithmetic"],
        ],
    },
    Part {
        sources: CORE,
        module: "lease::shared",
        layers: &[
            &["pages", "gang", "check", "view"],
            &["."],
            &["steer", "service", "books"],
            &["expected", "neighbours"],
            &["case", "contenders", "filler"],
            &["tenant", "trials"],
            &["doubt", "habit", "lag", "meter", "rest", "still", "trial"],
            &["mean", "outside"],
            &["rules", "bond", "changes", "done", "gate"],
        ],
    },
    Part {
        sources: CORE,
        module: "lease::turns",
        layers: &[
            &["billing", "deal", "check", "view"],
            &["line"],
            &["."],
            &["tenant"],
            &["clock"],
        ],
    },
    Part {
        sources: CORE,
        module: "ledger",
        layers: &[&["node", "returns"], &["."], &["account", "looks"]],
    },
    Part {
        sources: "protocol/src",
        module: "limits",
        layers: &[
            &["."],
            &[
                "maxima_read",
                "device",
                "changes",
                "seen",
                "flags",
                "outranked",
            ],
            &["table"],
            &["model"],
            &["compute"],
            &["maxima"],
            &["policy", "amounts"],
            &["setting", "near"],
            &["layer"],
            &["error"],
        ],
    },
];

/// A module as the list of names on its path; empty for the crate itself.
type Module = Vec<String>;

/// A path that a module names, and its line.
struct Named {
    file: String,
    line: usize,
    from: Module,
    to: Module,
}

struct Upward {
    file: String,
    line: usize,
    from: String,
    to: String,
}

impl fmt::Display for Upward {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            from,
            to,
        } = self;
        write!(out, "{file}:{line}: {from} -> {to}")
    }
}

/// The module of a source file, from its path below the crate's sources.
fn module_of(file: &str) -> Module {
    let path = file.trim_end_matches(".rs");
    let mut module: Module = path.split('/').map(str::to_owned).collect();
    let last = module.last().map(String::as_str);
    if matches!(last, Some("mod")) || matches!(path, "lib" | "main") {
        module.pop();
    }
    module
}

fn is_test(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    name == "tests.rs" || name.ends_with("_tests.rs") || file.contains("/tests/")
}

/// The text without comments and strings, and without what follows `#[cfg(test)]` at the end of a
/// file. Lines stay where they are.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars().peekable();
    let blank = |kept: &mut String, one: char| kept.push(if one == '\n' { '\n' } else { ' ' });
    while let Some(one) = rest.next() {
        match (one, rest.peek()) {
            ('/', Some('/')) => {
                while rest.peek().is_some_and(|next| *next != '\n') {
                    rest.next();
                }
            }
            ('/', Some('*')) => {
                let mut last = ' ';
                for next in rest.by_ref() {
                    blank(&mut out, next);
                    if last == '*' && next == '/' {
                        break;
                    }
                    last = next;
                }
            }
            ('"', _) => {
                let mut escaped = false;
                for next in rest.by_ref() {
                    blank(&mut out, next);
                    if next == '"' && !escaped {
                        break;
                    }
                    escaped = next == '\\' && !escaped;
                }
            }
            _ => out.push(one),
        }
    }
    let tests = "\n#[cfg(test)]\nmod ";
    match out.find(tests) {
        Some(at) if out[at + tests.len()..].contains('{') => out[..at].to_owned(),
        _ => out,
    }
}

/// Splits a path with braces into its leaves: `a::{b, c::d}` gives `a::b` and `a::c::d`. Returns
/// the length of the text read.
fn leaves(text: &str, before: &[String], found: &mut Vec<Module>) -> usize {
    let mut path = before.to_vec();
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let skipped = rest.len() - rest.trim_start().len();
        let rest = rest.trim_start();
        if let Some(inner) = rest.strip_prefix('{') {
            let mut read = 1;
            let mut inner = inner;
            loop {
                let space = inner.len() - inner.trim_start_matches([' ', '\n', ',']).len();
                inner = &inner[space..];
                read += space;
                if inner.is_empty() || inner.starts_with('}') {
                    return at + skipped + read + 1;
                }
                let step = leaves(inner, &path, found).max(1);
                inner = &inner[step.min(inner.len())..];
                read += step;
                // `as Name`
                let next = inner.find([',', '}']).unwrap_or(inner.len());
                inner = &inner[next..];
                read += next;
            }
        }
        let name = rest.find(|one: char| !one.is_alphanumeric() && one != '_');
        let name = &rest[..name.unwrap_or(rest.len())];
        if name.is_empty() {
            // `*`
            found.push(path);
            return at + skipped;
        }
        path.push(name.to_owned());
        at += skipped + name.len();
        match text[at..].trim_start().strip_prefix("::") {
            Some(more) => at = text.len() - more.len(),
            None => {
                found.push(path);
                return at;
            }
        }
    }
}

/// The paths that a file names, as written, each with its line.
fn paths(text: &str) -> Vec<(usize, Module)> {
    let mut named = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let starts = ["crate::", "super::", "self::"];
        let next = starts.iter().filter_map(|start| text[at..].find(start));
        let Some(next) = next.min() else { break };
        at += next;
        let inside = text[..at]
            .chars()
            .next_back()
            .is_some_and(|one| one.is_alphanumeric() || one == '_' || one == ':' || one == '$');
        if inside {
            at += 1;
            continue;
        }
        let line = text[..at].matches('\n').count() + 1;
        let mut found = Vec::new();
        at += leaves(&text[at..], &[], &mut found).max(1);
        named.extend(found.into_iter().map(|path| (line, path)));
    }
    named
}

/// A path as seen from `module`, resolved from the crate's root.
fn absolute(module: &Module, path: &[String]) -> Module {
    let mut at = match path.first().map(String::as_str) {
        Some("crate") => Module::new(),
        _ => module.clone(),
    };
    for name in path {
        match name.as_str() {
            "crate" | "self" => {}
            "super" => {
                at.pop();
            }
            name => at.push(name.to_owned()),
        }
    }
    at
}

fn named(files: &BTreeMap<String, String>) -> Vec<Named> {
    let mut all = Vec::new();
    for (file, text) in files.iter().filter(|(file, _)| !is_test(file)) {
        let from = module_of(file);
        for (line, path) in paths(&plain(text)) {
            all.push(Named {
                file: file.clone(),
                line,
                to: absolute(&from, &path),
                from: from.clone(),
            });
        }
    }
    all
}

/// The module directly inside `part` that a path leads to; `None` if the path leads outside.
fn inside<'a>(part: &[&str], to: &'a [String], known: &BTreeSet<&str>) -> Option<&'a str> {
    let within = to.len() >= part.len() && part.iter().zip(to).all(|(own, name)| own == name);
    within.then(|| match to.get(part.len()).map(String::as_str) {
        Some(name) if known.contains(name) => name,
        _ => ".",
    })
}

/// The upward arrows in a part, and its modules that no layer lists.
fn upward(
    files: &BTreeMap<String, String>,
    module: &str,
    layers: &[&[&str]],
) -> (Vec<Upward>, Vec<String>) {
    let part: Vec<&str> = module.split("::").filter(|name| !name.is_empty()).collect();
    let all = files.keys().filter(|file| !is_test(file));
    let modules: BTreeSet<Module> = all.map(|file| module_of(file)).collect();
    let known = |at: &&Module| at.len() > part.len();
    let of_part = |at: &&Module| part.iter().zip(at.iter()).all(|(own, name)| own == name);
    let known: BTreeSet<&str> = modules
        .iter()
        .filter(known)
        .filter(of_part)
        .map(|at| at[part.len()].as_str())
        .collect();
    let layer = |name: &str| layers.iter().position(|layer| layer.contains(&name));
    let unlisted = known.iter().filter(|name| layer(name).is_none());
    let mut listed = layers.iter().flat_map(|layer| layer.iter());
    let gone = listed
        .by_ref()
        .filter(|name| **name != "." && !known.contains(**name));
    let odd = unlisted
        .map(|name| format!("{module}::{name} is in no layer"))
        .chain(gone.map(|name| format!("{module}::{name} does not exist")))
        .collect();
    let mut arrows = Vec::new();
    for named in named(files) {
        let ends = (
            inside(&part, &named.from, &known),
            inside(&part, &named.to, &known),
        );
        let (Some(from), Some(to)) = ends else {
            continue;
        };
        // Imports of a part without a file of its own in a layer count for its parent.
        let (Some(above), Some(below)) = (layer(from), layer(to)) else {
            continue;
        };
        if from != to && below <= above {
            arrows.push(Upward {
                file: named.file,
                line: named.line,
                from: from.to_owned(),
                to: to.to_owned(),
            });
        }
    }
    (arrows, odd)
}

fn sources(root: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let name = path.strip_prefix(root).expect("inside").to_string_lossy();
                let text = fs::read_to_string(&path).expect("a source");
                files.insert(name.into_owned(), text);
            }
        }
    }
    files
}

#[test]
fn imports_point_down() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut wrong = Vec::new();
    for part in PARTS {
        let files = sources(&workspace.join(part.sources));
        assert!(!files.is_empty(), "{}", part.sources);
        let (arrows, odd) = upward(&files, part.module, part.layers);
        let arrows = arrows.iter();
        wrong.extend(arrows.map(|arrow| format!("{}/{arrow}", part.sources)));
        wrong.extend(odd);
    }
    assert!(wrong.is_empty(), "upward:\n{}", wrong.join("\n"));
}

fn example(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(file, text): &(&str, &str)| ((*file).to_owned(), (*text).to_owned());
    files.iter().map(owned).collect()
}

fn arrows(files: &[(&str, &str)], module: &str, layers: &[&[&str]]) -> Vec<String> {
    let (arrows, odd) = upward(&example(files), module, layers);
    arrows.iter().map(Upward::to_string).chain(odd).collect()
}

#[test]
fn an_upward_import_is_found_with_its_file_and_line() {
    let files = [
        ("lib.rs", "mod top;\nmod low;\n"),
        ("top.rs", "use crate::low::Thing;\n"),
        ("low/mod.rs", "mod deep;\npub struct Thing;\n"),
        (
            "low/deep.rs",
            "//! Not crate::top.\nuse super::Thing;\nfn f() { \"crate::top\"; super::super::top::go(); }\n",
        ),
    ];
    let layers: &[&[&str]] = &[&["."], &["top"], &["low"]];
    assert_eq!(arrows(&files, "", layers), ["low/deep.rs:3: low -> top"]);
    let inner: &[&[&str]] = &[&["."], &["deep"]];
    assert_eq!(arrows(&files, "low", inner), ["low/deep.rs:2: deep -> ."]);
    let turned: &[&[&str]] = &[&["deep"], &["."]];
    assert_eq!(arrows(&files, "low", turned), [""; 0]);
}

#[test]
fn modules_of_one_layer_may_not_import_each_other() {
    let files = [
        ("lib.rs", ""),
        (
            "one.rs",
            "use crate::{\n    low::{A, B as C},\n    two::X,\n};\n",
        ),
        (
            "two.rs",
            "use super::low;\n#[cfg(test)]\nmod tests {\n    use crate::one::Y;\n}\n",
        ),
        ("low.rs", ""),
    ];
    let layers: &[&[&str]] = &[&["."], &["one", "two"], &["low"]];
    assert_eq!(arrows(&files, "", layers), ["one.rs:1: one -> two"]);
}

#[test]
fn a_module_without_a_layer_and_an_unknown_module_are_found() {
    let files = [("lib.rs", ""), ("one.rs", "")];
    let layers: &[&[&str]] = &[&["."], &["two"]];
    assert_eq!(
        arrows(&files, "", layers),
        ["::one is in no layer", "::two does not exist"]
    );
}

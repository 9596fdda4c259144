//! The way in which the machine's calling convention passes the types that our sources name.

use std::collections::BTreeMap;
use std::fs;

use gpushare_tests::artefacts::repository;

use super::source::{code, sources};

/// Name of a type -> the type it is an alias of, or `=` and the way it is passed.
pub(crate) type Kinds = BTreeMap<String, String>;

/// The types of `gpushare-cuda-abi`: aliases, integers with names, handles, and structs by their
/// recorded size.
pub(crate) fn kinds() -> Kinds {
    let mut kinds = Kinds::new();
    let machine = ["i32", "u32", "c_int", "c_uint"]
        .map(|name| (name, "i4"))
        .into_iter();
    let machine = machine.chain(
        ["i64", "u64", "isize", "usize", "c_ulonglong", "c_longlong"].map(|name| (name, "i8")),
    );
    let machine = machine.chain([
        ("i8", "i1"),
        ("u8", "i1"),
        ("c_char", "i1"),
        ("i16", "i2"),
        ("u16", "i2"),
        ("f32", "f4"),
        ("f64", "f8"),
    ]);
    kinds.extend(machine.map(|(name, kind)| (name.to_owned(), format!("={kind}"))));
    let record = repository().join("interposer/cuda-abi/tests/data/abi-13.5.tsv");
    for line in fs::read_to_string(record)
        .expect("the record of layouts")
        .lines()
    {
        if let ["type", name, size, _] = line.split('\t').collect::<Vec<_>>()[..] {
            kinds.insert(name.to_owned(), format!("=s{size}"));
        }
    }
    for path in [
        "interposer/cuda-abi/src/cuda",
        "interposer/cuda-abi/src/nvml",
    ]
    .into_iter()
    .flat_map(sources)
    {
        declared(&code(&path), &mut kinds);
    }
    kinds
}

/// The declarations of one file of types. Aliases may name later types, so they are resolved at
/// their use.
fn declared(text: &str, kinds: &mut Kinds) {
    for line in text.lines().map(str::trim) {
        if let Some((name, target)) = line
            .strip_prefix("pub type ")
            .and_then(|rest| rest.trim_end_matches(';').split_once(" ="))
        {
            let target = if target.trim().is_empty() || target.contains("Option<") {
                "*fn"
            } else {
                target.trim()
            };
            kinds.insert(name.to_owned(), target.to_owned());
        } else if let Some((name, integer)) = line
            .strip_prefix("pub struct ")
            .and_then(|rest| rest.strip_suffix(");")?.split_once('('))
        {
            kinds.insert(name.to_owned(), integer.to_owned());
        } else if let Some(name) = line
            .strip_suffix(';')
            .filter(|name| name.chars().all(|c| c.is_alphanumeric() || c == '_'))
        {
            kinds.insert(name.to_owned(), "=ptr".to_owned());
        }
    }
}

/// Further names that one file gives to types: `type Pointers = …;` and `use …::CUdevice_attribute
/// as Attribute`.
pub(crate) fn renamed(text: &str, kinds: &Kinds) -> Kinds {
    let mut kinds = kinds.clone();
    for line in text.lines().map(str::trim) {
        if let Some((name, target)) = line
            .strip_prefix("type ")
            .and_then(|rest| rest.trim_end_matches(';').split_once(" = "))
        {
            kinds.insert(name.to_owned(), target.to_owned());
        }
    }
    let words: Vec<&str> = text
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .collect();
    for words in words.windows(3) {
        if words[1] == "as" && kinds.contains_key(words[0]) && !kinds.contains_key(words[2]) {
            kinds.insert(words[2].to_owned(), words[0].to_owned());
        }
    }
    kinds
}

/// The interposer's types that are a C pointer (`repr(transparent)`), and its counting number type.
const POINTERS: [&str; 7] = [
    "In<", "Out<", "InOut<", "InSlice<", "Room<", "Opaque<", "Text<",
];
const COUNT: &str = "Count<";

/// The way in which a Rust type is passed.
pub(crate) fn kind(rust: &str, kinds: &Kinds) -> String {
    let rust = rust.trim();
    if let Some(number) = rust.strip_prefix(COUNT) {
        return kind(number.trim_end_matches('>'), kinds);
    }
    if POINTERS.iter().any(|name| rust.starts_with(name)) {
        return "ptr".to_owned();
    }
    if rust.starts_with('*') || rust.starts_with("Option<") || rust.starts_with("unsafe extern") {
        return "ptr".to_owned();
    }
    let name = rust.rsplit("::").next().expect("a name");
    let target = kinds
        .get(name)
        .unwrap_or_else(|| panic!("{rust} is a type this test does not know"));
    match target.strip_prefix('=') {
        Some(passed) => passed.to_owned(),
        None => kind(target, kinds),
    }
}

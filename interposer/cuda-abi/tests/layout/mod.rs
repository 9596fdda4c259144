//! The types of this crate lie in memory as the public headers say, and their values are the
//! headers' values.
//!
//! Three witnesses: bindings that cudarc made from the header; `tests/data/abi-13.5.tsv`, recorded
//! by compiling a C program against the header; and that program again, where
//! `GPUTEST_CUDA_INCLUDE` names the folders of `cuda.h` and `nvml.h` (separated by colons, as the
//! wheels nvidia-cuda-runtime and nvidia-nvml-dev install them). `GPUTEST_RECORD=1` writes the
//! record anew.

mod header;
mod types;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// One struct or union: its size, alignment and the offset of every field, those of members
/// included.
#[derive(Debug, PartialEq, Eq)]
struct Layout {
    name: &'static str,
    size: usize,
    align: usize,
    fields: Vec<(String, usize)>,
}

/// A value of an enumeration by its C name.
type Value = (&'static str, i128);

/// Layouts of a list of `types.rs`, members of unnamed unions included.
macro_rules! with_unnamed {
    ($($name:ident { $($($field:ident).+),* } $(+ { $($($inner:ident).+),* })?)*) => {
        vec![$(Layout {
            name: stringify!($name),
            size: size_of::<$name>(),
            align: align_of::<$name>(),
            fields: vec![
                $((path(stringify!($($field).+)), std::mem::offset_of!($name, $($field).+)),)*
                $($((path(stringify!($($inner).+)), std::mem::offset_of!($name, $($inner).+)),)*)?
            ],
        }),*]
    };
}

/// Layouts of a list of `types.rs` without what each binding names in its own way.
macro_rules! named_only {
    ($($name:ident { $($($field:ident).+),* } $(+ { $($($inner:ident).+),* })?)*) => {
        vec![$(Layout {
            name: stringify!($name),
            size: size_of::<$name>(),
            align: align_of::<$name>(),
            fields: vec![$((path(stringify!($($field).+)), std::mem::offset_of!($name, $($field).+)),)*],
        }),*]
    };
}

/// Every named value of a list of enumerations.
macro_rules! values {
    ($($name:ident),* $(,)?) => {
        [$($name::NAMES.iter().map(|(value, name)| (name.to_str().expect("ASCII"), i128::from(*value))).collect::<Vec<_>>()),*].concat()
    };
}

/// A field's path as C writes it: without the unnamed members, and `type`, `fn` without the
/// underscore.
fn path(rust: &str) -> String {
    let parts = rust
        .split('.')
        .map(str::trim)
        .filter(|part| *part != "anon");
    let parts = parts.map(|part| {
        if matches!(part, "type_" | "fn_") {
            part.trim_end_matches('_')
        } else {
            part
        }
    });
    parts.collect::<Vec<_>>().join(".")
}

mod cuda {
    use super::{Layout, Value, path, types};
    use gpushare_cuda_abi::cuda::*;

    pub(crate) fn shared() -> Vec<Layout> {
        types::in_cudarc!(named_only)
    }

    pub(crate) fn all() -> Vec<Layout> {
        let mut all: Vec<Layout> = types::in_cudarc!(with_unnamed);
        let newer: Vec<Layout> = types::header_only!(with_unnamed);
        all.extend(newer);
        all
    }

    pub(crate) fn values() -> Vec<Value> {
        types::cuda_values!(values)
    }
}

mod nvml {
    use super::{Layout, Value, path, types};
    use gpushare_cuda_abi::nvml::*;

    pub(crate) fn all() -> Vec<Layout> {
        types::of_nvml!(with_unnamed)
    }

    pub(crate) fn values() -> Vec<Value> {
        types::nvml_values!(values)
    }
}

mod cudarc_bindings {
    use super::{Layout, path, types};
    use cudarc::driver::sys::*;

    pub(crate) fn shared() -> Vec<Layout> {
        types::in_cudarc!(named_only)
    }
}

/// The lines that `tests/data/abi-13.5.tsv` should have for our types, as the C program prints
/// them.
fn rendered(layouts: &[Layout], values: &[Value]) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for layout in layouts {
        lines.insert(format!(
            "type\t{}\t{}\t{}",
            layout.name, layout.size, layout.align
        ));
        for (field, offset) in &layout.fields {
            lines.insert(format!("field\t{}.{field}\t{offset}", layout.name));
        }
    }
    lines.extend(
        values
            .iter()
            .map(|(name, value)| format!("value\t{name}\t{value}")),
    );
    lines
}

fn ours() -> BTreeSet<String> {
    let layouts: Vec<Layout> = cuda::all().into_iter().chain(nvml::all()).collect();
    rendered(&layouts, &[cuda::values(), nvml::values()].concat())
}

fn record() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/abi-13.5.tsv")
}

/// Fails with the lines of one side only, not with two thousand lines.
fn assert_same(ours: &BTreeSet<String>, theirs: &BTreeSet<String>) {
    let only =
        |a: &BTreeSet<String>, b: &BTreeSet<String>| a.difference(b).cloned().collect::<Vec<_>>();
    assert_eq!(
        (only(ours, theirs), only(theirs, ours)),
        (Vec::<String>::new(), Vec::<String>::new()),
        "(ours, the header's)"
    );
}

#[test]
fn types_have_the_layout_of_another_projects_bindings() {
    for (ours, theirs) in cuda::shared().into_iter().zip(cudarc_bindings::shared()) {
        assert_eq!(ours, theirs);
    }
}

#[test]
fn types_and_values_are_those_recorded_from_the_header() {
    let text = fs::read_to_string(record()).expect("the record");
    let recorded = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    assert_same(&ours(), &recorded);
}

#[test]
fn the_record_is_what_the_header_compiles_to() {
    let Some(folders) = std::env::var_os("GPUTEST_CUDA_INCLUDE") else {
        eprintln!(
            "SKIPPED the_record_is_what_the_header_compiles_to: GPUTEST_CUDA_INCLUDE is not set"
        );
        return;
    };
    let layouts: Vec<Layout> = cuda::all().into_iter().chain(nvml::all()).collect();
    let compiled = header::compile(
        &folders,
        &layouts,
        &[cuda::values(), nvml::values()].concat(),
    );
    if std::env::var_os("GPUTEST_RECORD").is_some() {
        let head = "# What cuda.h and nvml.h of CUDA 13.5 compile to on x86-64: type, size, alignment; field, offset; value.\n";
        let lines: String = compiled.iter().map(|line| format!("{line}\n")).collect();
        fs::write(record(), format!("{head}{lines}")).expect("the record is writable");
    }
    assert_same(&ours(), &compiled);
}

#[test]
fn every_type_of_the_crate_is_compared() {
    let compared: BTreeSet<&str> = cuda::all()
        .iter()
        .chain(&nvml::all())
        .map(|layout| layout.name)
        .collect();
    let listed = include_str!("types.rs");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut missing = Vec::new();
    for folder in ["cuda", "nvml"] {
        for file in fs::read_dir(sources.join(folder)).expect("a folder of types") {
            let text = fs::read_to_string(file.expect("an entry").path()).expect("a source file");
            for line in text.lines() {
                let Some(rest) = line
                    .trim_start()
                    .strip_prefix("pub struct ")
                    .or_else(|| line.strip_prefix("pub union "))
                else {
                    continue;
                };
                let name = rest
                    .split(|c: char| !c.is_alphanumeric() && c != '_')
                    .next()
                    .expect("a name");
                let member = compared
                    .iter()
                    .any(|outer| name.starts_with(&format!("{outer}_")));
                let value = rest.contains('(') && listed.contains(&format!("{name},"));
                if !compared.contains(name) && !member && !value {
                    missing.push(name.to_owned());
                }
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new(), "types no comparison knows");
}

//! Turns `symbols/*.tsv` into the constant tables of `src/symbols`. A table that does not answer a
//! column does not build.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::{env, fs, path::Path};

/// Lines of one table without comments and header, split at the tabs.
fn rows(file: &str, columns: usize) -> Vec<Vec<String>> {
    println!("cargo::rerun-if-changed=symbols/{file}");
    let text = fs::read_to_string(Path::new("symbols").join(file)).expect("a table of symbols/");
    let rows: Vec<Vec<String>> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .skip(1)
        .map(|line| line.split('\t').map(str::to_owned).collect())
        .collect();
    for row in &rows {
        assert!(
            row.len() == columns && row.iter().all(|cell| !cell.is_empty()),
            "{file}: every row answers all {columns} columns: {row:?}"
        );
    }
    assert!(
        rows.is_sorted_by(|a, b| a[0] < b[0]),
        "{file}: rows are in the byte order of their first column, without doubles"
    );
    rows
}

/// `sync` -> `Charge::Sync`, `no:query` -> `Charge::No("query")`; unknown words fail to compile in
/// the generated code.
fn answer(kind: &str, cell: &str) -> String {
    match cell.strip_prefix("no:") {
        Some(reason) => format!("{kind}::No({reason:?})"),
        None => format!("{kind}::{}", capitalised(cell)),
    }
}

fn capitalised(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}

fn per_thread(cell: &str) -> String {
    match (cell, cell.strip_prefix("twin:")) {
        ("plain", _) => "PerThread::Plain".into(),
        ("is-twin", _) => "PerThread::IsTwin".into(),
        (_, Some(twin)) => format!("PerThread::Twin({twin:?})"),
        _ => panic!("per_thread is plain, is-twin or twin:NAME, not {cell:?}"),
    }
}

fn cuda(rows: &[Vec<String>]) -> String {
    let mut out = "pub static CUDA: &[CudaSymbol] = &[\n".to_owned();
    let mut bases: BTreeMap<&str, Vec<(u32, usize)>> = BTreeMap::new();
    for (index, row) in rows.iter().enumerate() {
        let [name, base, version, thread, class, charge, gate, view] = row.as_slice() else {
            unreachable!()
        };
        let version: u32 = version.parse().expect("min_version is a number");
        writeln!(
            out,
            "CudaSymbol {{ name: {name:?}, base: {base:?}, min_version: {version}, thread: {}, class: Class::{}, \
             charge: {}, gate: {}, view: {} }},",
            per_thread(thread),
            capitalised(class),
            answer("Charge", charge),
            answer("Gate", gate),
            answer("View", view),
        )
        .expect("a string");
        let variants = bases.entry(base).or_default();
        if thread != "is-twin" {
            variants.push((version, index));
        }
    }
    out + "];\n" + &packed(rows, bases)
}

/// The same rows without a pointer in them: what lookups at run time read
/// (`src/symbols/packed.rs`).
fn packed(rows: &[Vec<String>], bases: BTreeMap<&str, Vec<(u32, usize)>>) -> String {
    let index_of = |name: &str| rows.iter().position(|row| row[0] == name);
    let mut names = String::new();
    let mut out = format!("static PACKED: [Packed; {}] = [\n", rows.len());
    for row in rows {
        let [name, base, version, thread, ..] = row.as_slice() else {
            unreachable!()
        };
        assert!(
            name.starts_with(base.as_str()),
            "{name}: a name begins with its base"
        );
        let twin = thread.strip_prefix("twin:").map_or(u16::MAX, |twin| {
            let index = index_of(twin).unwrap_or_else(|| panic!("{name}: no row for {twin}"));
            u16::try_from(index).expect("few rows")
        });
        writeln!(
            out,
            "Packed {{ at: {}, name: {}, base: {}, twin: {twin}, min_version: {version} }},",
            names.len(),
            name.len(),
            base.len(),
        )
        .expect("a string");
        names += name;
    }
    out += "];\n";
    let (mut by_base, mut variants) = (String::new(), Vec::new());
    let count = bases.len();
    for mut of_base in bases.into_values() {
        of_base.sort_unstable();
        let (from, len) = (variants.len(), of_base.len());
        writeln!(by_base, "Base {{ from: {from}, count: {len} }},").expect("a string");
        variants.extend(of_base.into_iter().map(|(_, index)| index));
    }
    writeln!(
        out,
        "/// All names, one behind the other.\nstatic NAMES: &str = {names:?};\n\
         /// Indices of rows, base by base: variants from the lowest version up, twins left out.\n\
         static VARIANTS: [u16; {}] = {variants:?};\n\
         /// By base name.\nstatic BY_BASE: [Base; {count}] = [\n{by_base}];",
        variants.len(),
    )
    .expect("a string");
    out
}

fn nvml(rows: &[Vec<String>]) -> String {
    let mut out = "pub static NVML: &[NvmlSymbol] = &[\n".to_owned();
    for row in rows {
        let [name, base, class, default, view] = row.as_slice() else {
            unreachable!()
        };
        writeln!(
            out,
            "NvmlSymbol {{ name: {name:?}, base: {base:?}, class: NvmlClass::{}, default: {default:?}, view: {} }},",
            capitalised(class),
            answer("View", view),
        )
        .expect("a string");
    }
    out + "];\n"
}

fn reasons(rows: &[Vec<String>]) -> String {
    let mut out = "pub static REASONS: &[Reason] = &[\n".to_owned();
    for row in rows {
        let [code, column, sentence] = row.as_slice() else {
            unreachable!()
        };
        writeln!(
            out,
            "Reason {{ code: {code:?}, column: {column:?}, sentence: {sentence:?} }},"
        )
        .expect("a string");
    }
    out + "];\n"
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let docs = "/// One row per function, in the byte order of their names.\n";
    let generated = [
        docs.to_owned() + &cuda(&rows("cuda.tsv", 8)),
        docs.to_owned() + &nvml(&rows("nvml.tsv", 5)),
        "/// Why functions are left alone, by code.\n".to_owned()
            + &reasons(&rows("reasons.tsv", 3)),
    ];
    let out = Path::new(&env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("tables.rs");
    fs::write(out, generated.concat()).expect("OUT_DIR is writable");
}

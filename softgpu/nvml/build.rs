//! Defines every name of the NVML symbol table. It finds the implemented functions by reading
//! `src/api`; the other functions return `NVML_ERROR_NOT_SUPPORTED`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

use gpushare_cuda_abi::symbols;

fn main() -> io::Result<()> {
    for arg in [
        "-Wl,-soname,libnvidia-ml.so.1",
        "-Wl,-Bsymbolic",
        "-Wl,-z,nodelete",
    ] {
        println!("cargo::rustc-cdylib-link-arg={arg}");
    }
    println!("cargo::rerun-if-changed=src/api");
    println!("cargo::rerun-if-changed=build.rs");
    let implemented = implemented(Path::new("src/api"))?;
    for name in &implemented {
        assert!(
            symbols::nvml_by_name(name).is_some(),
            "{name} is not in the symbol table"
        );
    }
    let mut text = String::new();
    for row in symbols::NVML
        .iter()
        .filter(|row| !implemented.contains(row.name))
    {
        let name = row.name;
        let body = format!("crate::library::not_supported({name:?})");
        // No parameters: in the C calling convention the caller cleans up its own arguments.
        text.write_fmt(format_args!(
            "// SAFETY: the name is NVML's, defined nowhere else in this library.\n\
             #[unsafe(no_mangle)]\nextern \"C\" fn {name}() -> ::gpushare_cuda_abi::nvml::nvmlReturn_t {{ {body} }}\n"
        ))
        .expect("writing to a String cannot fail");
    }
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts");
    fs::write(Path::new(&out).join("others.rs"), text)
}

/// The names that `nvml!` items in the folder define: `fn nvmlName`, outside comments.
fn implemented(folder: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let text = fs::read_to_string(entry?.path())?;
        let lines = text
            .lines()
            .map(str::trim_start)
            .filter(|line| !line.starts_with("//"));
        names.extend(lines.filter_map(|line| {
            let rest = &line[line.find("fn nvml")? + "fn ".len()..];
            Some(
                rest.chars()
                    .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                    .collect::<String>(),
            )
        }));
    }
    Ok(names)
}

//! Defines every name of the symbol table. It finds the implemented functions by reading `src/api`;
//! the other functions return `CUDA_ERROR_NOT_SUPPORTED`. It also writes the table that
//! `cuGetProcAddress` searches.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

use gpushare_cuda_abi::symbols;

fn main() -> io::Result<()> {
    for arg in [
        "-Wl,-soname,libcuda.so.1",
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
            symbols::cuda_by_name(name).is_some(),
            "{name} is not in the symbol table"
        );
    }
    let mut text = String::new();
    write_implemented(&mut text, &implemented);
    write_others(&mut text, &implemented);
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts");
    fs::write(Path::new(&out).join("names.rs"), text)
}

/// The names that `driver!` items in the folder define: `fn cuName` and `twin cuName`, outside
/// comments.
fn implemented(folder: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        for line in fs::read_to_string(&path)?.lines().map(str::trim_start) {
            if line.starts_with("//") {
                continue;
            }
            names.extend(
                ["fn ", "twin "]
                    .into_iter()
                    .filter_map(|keyword| name_after(line, keyword)),
            );
        }
    }
    Ok(names)
}

fn name_after(line: &str, keyword: &str) -> Option<String> {
    let rest = &line[line.find(keyword)? + keyword.len()..];
    let name: String = rest
        .chars()
        .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
        .collect();
    name.starts_with("cu").then_some(name)
}

fn write_implemented(text: &mut String, names: &BTreeSet<String>) {
    let mut line = |args: std::fmt::Arguments<'_>| {
        text.write_fmt(args)
            .expect("writing to a String cannot fail")
    };
    line(format_args!("unsafe extern \"C\" {{\n"));
    for name in names {
        line(format_args!("    fn {name}();\n"));
    }
    line(format_args!(
        "}}\n/// Every implemented function by its exported name, sorted.\n"
    ));
    line(format_args!(
        "pub(crate) static IMPLEMENTED: &[(&str, unsafe extern \"C\" fn())] = &[\n"
    ));
    for name in names {
        line(format_args!("    (\"{name}\", {name}),\n"));
    }
    line(format_args!("];\n"));
}

/// Bodies for the rest of the symbol table. They take no parameters: in the C calling convention
/// the caller cleans up its own arguments.
fn write_others(text: &mut String, implemented: &BTreeSet<String>) {
    for row in symbols::CUDA
        .iter()
        .filter(|row| !implemented.contains(row.name))
    {
        let name = row.name;
        let body = format!("crate::driver::not_supported({name:?})");
        text.write_fmt(format_args!(
            "// SAFETY: the name is the driver's, defined nowhere else in this library.\n\
             #[unsafe(no_mangle)]\nextern \"C\" fn {name}() -> ::gpushare_cuda_abi::cuda::CUresult {{ {body} }}\n"
        ))
        .expect("writing to a String cannot fail");
    }
}

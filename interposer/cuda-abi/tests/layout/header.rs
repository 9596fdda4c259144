//! A C program of `sizeof`, `offsetof` and enumerators, compiled against the real headers.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use super::{Layout, Value};

/// The lines the program prints; fails where the compiler does, which names what the header does
/// not have.
pub(crate) fn compile(folders: &OsStr, layouts: &[Layout], values: &[Value]) -> BTreeSet<String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (source, program) = (folder.path().join("abi.c"), folder.path().join("abi"));
    fs::write(&source, text(layouts, values)).expect("a temporary file");
    let includes = std::env::split_paths(folders).map(|path| format!("-I{}", path.display()));
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let built = Command::new(compiler)
        .args(includes)
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .output()
        .expect("a C compiler");
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let output = Command::new(&program).output().expect("the program runs");
    assert!(output.status.success());
    String::from_utf8(output.stdout)
        .expect("ASCII")
        .lines()
        .map(str::to_owned)
        .collect()
}

/// The program: one `printf` a line of the record. The first macro makes the header show the types
/// of CUDA 2 as well.
fn text(layouts: &[Layout], values: &[Value]) -> String {
    let mut out = "#define __CUDA_API_VERSION_INTERNAL\n#include <stddef.h>\n#include <stdio.h>\n#include <cuda.h>\n#include <nvml.h>\n\
                   #define TYPE(t) printf(\"type\\t%s\\t%zu\\t%zu\\n\", #t, sizeof(t), _Alignof(t));\n\
                   #define FIELD(t, f) printf(\"field\\t%s.%s\\t%zu\\n\", #t, #f, offsetof(t, f));\n\
                   #define VALUE(v) printf(\"value\\t%s\\t%lld\\n\", #v, (long long)(v));\n\
                   int main(void) {\n"
        .to_owned();
    for layout in layouts {
        writeln!(out, "TYPE({})", layout.name).expect("a string");
        for (field, _) in &layout.fields {
            writeln!(out, "FIELD({}, {field})", layout.name).expect("a string");
        }
    }
    for (name, _) in values {
        writeln!(out, "VALUE({name})").expect("a string");
    }
    out + "return 0;\n}\n"
}

//! Linker settings of libgpushare.so.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    for argument in [
        // Our own references bind to our own functions, even where the program or an earlier
        // preload exports the same names.
        bind_locally(),
        // Hooks are handed out as plain addresses: the code behind them must stay mapped whatever
        // is closed.
        "-Wl,-z,nodelete",
        // A symbol without a definition is a build error, not a crash in a tenant's process.
        "-Wl,-z,defs",
        "-Wl,-soname,libgpushare.so",
    ] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
    if let Some(folder) = unwinder_inside() {
        println!("cargo:rustc-cdylib-link-arg=-L{}", folder.display());
    }
    println!("cargo:rerun-if-changed=build.rs");
}

/// The standard library asks for the unwinder as libgcc_s, a shared library that every program
/// would then load and relocate. Returns a folder in which that name stands for gcc's archives of
/// the same code, so that it is linked in, as it is in packages, where zig does the same. `None`
/// where the compiler has no such archives: then it is loaded.
fn unwinder_inside() -> Option<PathBuf> {
    println!("cargo:rerun-if-env-changed=CC");
    let is_gnu = std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu");
    let is_native = std::env::var("TARGET").ok() == std::env::var("HOST").ok();
    if !is_gnu || !is_native || is_zig() {
        return None;
    }
    let archives = [archive("libgcc_eh.a")?, archive("libgcc.a")?];
    let folder = PathBuf::from(std::env::var_os("OUT_DIR")?).join("unwinder");
    fs::create_dir_all(&folder).ok()?;
    let script = format!("GROUP ( {} )\n", archives.join(" "));
    fs::write(folder.join("libgcc_s.so"), script).ok()?;
    Some(folder)
}

/// The path of one of the compiler's own archives.
fn archive(name: &str) -> Option<String> {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(compiler)
        .arg(format!("-print-file-name={name}"))
        .output()
        .ok()?;
    let path = String::from_utf8(output.stdout).ok()?;
    let path = path.trim();
    // An unknown name is returned unchanged. The linker's scripts cannot quote special characters.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+".contains(&byte);
    (path.starts_with('/') && path.bytes().all(is_plain)).then(|| path.to_owned())
}

fn is_zig() -> bool {
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    std::env::var("RUSTC_LINKER").is_ok_and(|linker| linker.contains("zig"))
}

/// zig's linker, which packages are built with, knows only the form that also marks the file as
/// `SYMBOLIC`. That mark would make the dynamic linker search us first for our own lookups,
/// wherever we stand; scripts/package.sh takes it out again.
fn bind_locally() -> &'static str {
    if is_zig() {
        "-Wl,-Bsymbolic"
    } else {
        "-Wl,-Bsymbolic-functions"
    }
}

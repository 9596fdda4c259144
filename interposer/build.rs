//! Linker settings of libgpushare.so.

fn main() {
    for argument in [
        // Our own references bind to our own functions, even where the program or an earlier preload exports the same names.
        bind_locally(),
        // Hooks are handed out as plain addresses: the code behind them must stay mapped whatever is closed.
        "-Wl,-z,nodelete",
        // A symbol that nothing provides is a build error, not a crash in somebody's container.
        "-Wl,-z,defs",
        "-Wl,-soname,libgpushare.so",
    ] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}

/// zig's linker, which packages are built with, knows only the form that also marks the file as `SYMBOLIC`. That mark would make
/// the dynamic linker search us first for our own lookups, wherever we stand; scripts/package.sh takes it out again.
fn bind_locally() -> &'static str {
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    match std::env::var("RUSTC_LINKER") {
        Ok(linker) if linker.contains("zig") => "-Wl,-Bsymbolic",
        _ => "-Wl,-Bsymbolic-functions",
    }
}

//! Linker settings of libgpushare.so.

fn main() {
    for argument in [
        // Our own references bind to our own symbols, even where the program or an earlier preload exports the same names.
        // (Not -Bsymbolic-functions: the linker the package is built with does not know it.)
        "-Wl,-Bsymbolic",
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

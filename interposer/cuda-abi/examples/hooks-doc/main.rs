//! Prints docs/HOOKS.md from the symbol table:
//! `cargo run -p gpushare-cuda-abi --example hooks-doc > docs/HOOKS.md`.

mod render;

#[allow(clippy::print_stdout, reason = "printing is what this program is for")]
fn main() {
    print!("{}", render::hooks());
}

//! docs/HOOKS.md is what the symbol table says today.

#[path = "../examples/hooks-doc/render.rs"]
mod render;

use std::path::Path;

#[test]
fn the_page_of_hooks_is_what_the_table_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/HOOKS.md");
    let written = std::fs::read_to_string(page).expect("docs/HOOKS.md");
    assert!(
        written == render::hooks(),
        "docs/HOOKS.md is stale: cargo run -p gpushare-cuda-abi --example hooks-doc > docs/HOOKS.md"
    );
}

#[test]
fn every_function_is_on_the_page() {
    let page = render::hooks();
    let missing = |name: &str| !page.contains(&format!("`{name}`"));
    let twins = gpushare_cuda_abi::symbols::PerThread::IsTwin;
    let cuda = gpushare_cuda_abi::symbols::CUDA
        .iter()
        .filter(|row| row.thread != twins)
        .map(|row| row.name);
    let nvml = gpushare_cuda_abi::symbols::NVML.iter().map(|row| row.name);
    assert_eq!(
        cuda.chain(nvml)
            .filter(|name| missing(name))
            .collect::<Vec<_>>(),
        Vec::<&str>::new()
    );
    assert!(!page.contains('{'), "a count was not filled in");
}

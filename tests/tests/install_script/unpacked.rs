//! The tarball as it is unpacked, before or without an installation.

use super::*;
use gpushare_tests::guest::clean;
use gpushare_tests::{Home, artefacts};

#[test]
fn a_program_has_its_limit_from_where_the_tarball_is_unpacked() {
    let (home, folder) = (Home::new("mem=16GiB"), unpacked());
    for (from, to) in [
        (artefacts::gpushare(), "bin/gpushare"),
        (artefacts::interposer(), "lib/package/libgpushare.so"),
        (artefacts::soft_cuda(), "lib/libsoftgpu_cuda.so"),
        (artefacts::soft_nvml(), "lib/libsoftgpu_nvml.so"),
    ] {
        fs::copy(from, folder.path().join(to)).expect("copied");
    }
    let command = folder.path().join("bin/gpushare");
    let gpu = format!("soft:{}", home.gpu().spec());
    let output = clean(&command)
        .args(["run", "--daemon", "off", "--gpu", &gpu])
        .args(["--mem-limit", "1GiB", "--"])
        .arg(&command)
        .arg("devices")
        .env("XDG_RUNTIME_DIR", home.folder())
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains("1 GiB"), "{said}");
}

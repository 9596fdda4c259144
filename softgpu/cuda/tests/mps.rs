//! The MPS attribute, with and without the socket of a control daemon.
#![allow(clippy::unwrap_used, reason = "a test fails on any error")]

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The client's output with this pipe folder.
fn said(client: &Path, folder: &Path) -> String {
    let driver = env::current_exe().unwrap();
    let mut command = Command::new(client);
    command.arg(driver.with_file_name("libsoftgpu_cuda.so"));
    command.env("CUDA_MPS_PIPE_DIRECTORY", folder);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn mps_is_reported_while_a_control_daemon_listens_on_its_socket() {
    let client = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("mps");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/mps.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-o"]).arg(&client).arg(source);
    assert!(compiler.arg("-ldl").status().unwrap().success());
    let folder = env::temp_dir().join(format!("softgpu-mps-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    assert_eq!(said(&client, &folder), "mps 0\n");
    let daemon = UnixListener::bind(folder.join("control")).unwrap();
    assert_eq!(said(&client, &folder), "mps 1\n");
    drop(daemon);
    assert_eq!(
        said(&client, &folder),
        "mps 0\n",
        "the socket file is stale"
    );
    fs::remove_dir_all(&folder).unwrap();
}

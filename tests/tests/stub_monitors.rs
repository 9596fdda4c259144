//! What NVML tells a tenant that only a stub of it can tell: memory that no device measures, and
//! memory under confidential computing, which softgpu does not have.

use std::path::Path;
use std::process::Command;

use gpushare_tests::{Gpu, Guest, clients, guest};

use crate::pid_namespaces::{alone, machines_nvml, runtime, started, uuid};

/// An NVML program in the tenant of [`alone`], where NVML lists no process of it.
fn in_tenant(gpu: &Gpu, runtime: &Path, nvml: &Path, program: &str) -> Command {
    let mut run = guest::clean(&clients::compile(program, &[]));
    for (name, value) in alone(gpu, runtime).get_envs() {
        run.env(name, value.unwrap_or_default());
    }
    run.env("LD_LIBRARY_PATH", nvml)
        .env("STUB_UUID", uuid(gpu.truth().uuid_bytes))
        .env("STUB_PIDS", "1");
    run
}

#[test]
fn a_context_that_is_not_measured_takes_no_byte_by_nvml() {
    let gpu = Gpu::new("mem=16GiB");
    let folder = runtime();
    let mut guest = started(alone(&gpu, folder.path()));
    let nvml = machines_nvml();
    let seen = || {
        let run = in_tenant(&gpu, folder.path(), nvml.path(), "monitor");
        Guest::start(run).finish().silently()
    };
    assert!(seen().contains("memory: 0, total 4294967296, used 0, free 4294967296\n"));
    assert_eq!(guest.ask("alloc 536870912"), "alloc 0");
    assert!(seen().contains("memory: 0, total 4294967296, used 536870912, free 3758096384\n"));
    // Where NVML lists none of the tenant, the books alone say what is used.
    assert_eq!(guest.ask("free 1"), "free 0");
    assert!(seen().contains("memory: 0, total 4294967296, used 0, free 4294967296\n"));
    guest.finish().silently();
}

#[test]
fn protected_memory_is_the_tenants_where_there_is_any() {
    let gpu = Gpu::new("mem=16GiB");
    let folder = runtime();
    let mut guest = started(alone(&gpu, folder.path()));
    assert_eq!(guest.ask("alloc 536870912"), "alloc 0");
    let nvml = machines_nvml();
    let seen = |protects: bool| {
        let mut run = in_tenant(&gpu, folder.path(), nvml.path(), "told");
        if protects {
            run.env("STUB_PROTECTED", "1");
        }
        Guest::start(run).finish().silently()
    };
    assert!(
        seen(true).ends_with("protected 0 4096 512 3072\n"),
        "of 3 GiB free"
    );
    assert!(seen(false).ends_with("protected 0 0 0 0\n"));
    guest.finish().silently();
}

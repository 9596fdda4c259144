//! What NVML tells a tenant that only a stub of it can tell: memory that no device measures, memory
//! under confidential computing and accounts of processes, which softgpu does not have.

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

#[test]
fn a_tenant_is_told_of_the_accounts_of_its_own_processes_alone() {
    let gpu = Gpu::new("mem=16GiB");
    let folder = runtime();
    let guest = started(alone(&gpu, folder.path()));
    let nvml = machines_nvml();
    let own = guest.id();
    let all = format!("1 {own}");
    let told = |mut run: Command, wanted: u32| {
        run.env("LD_LIBRARY_PATH", nvml.path())
            .env("STUB_PIDS", &all)
            .arg(wanted.to_string());
        Guest::start(run).finish().silently()
    };
    let inside = |wanted| told(in_tenant(&gpu, folder.path(), nvml.path(), "told"), wanted);
    let seen = inside(own);
    let account = format!("accounts 7 1 0 1 1\naccount 0 {own} 0 {own} {own}\nnowhere 2 2\n");
    assert!(seen.contains(&account), "{seen}");
    let seen = inside(1);
    let none = "accounts 7 1 0 1 0\naccount 6 0 6 1 0\nnowhere 2 2\n";
    assert!(seen.contains(none), "{seen}");
    // Outside of tenants all have one.
    let seen = told(guest::clean(&clients::compile("told", &[])), 1);
    let account = "accounts 7 2 0 2 1\naccount 0 1 0 1 1\nnowhere 2 2\n";
    assert!(seen.contains(account), "{seen}");
    guest.finish().silently();
}

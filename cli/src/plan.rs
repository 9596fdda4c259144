//! Everything a program is started with, checked before anything starts.

use crate::args::Share;
use crate::artefacts::{self, INTERPOSER};
use crate::daemon;
use crate::failure::Failure;
use crate::gpu::Gpu;
use crate::host;
use crate::links::Links;
use crate::log_file;
use crate::mps;
use crate::preload;
use crate::settings::{self, Environment};
use crate::tenant::{self, Tenant};
use gpushare_protocol::injection::LIBRARY;
use gpushare_protocol::limits::Limits;
use gpushare_protocol::paths::TENANT;
use gpushare_protocol::units::Bytes;
use gpushare_sys::devices::Device;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A checked start.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The program's whole environment.
    pub(crate) environment: Environment,
    /// The unit of quota it belongs to.
    pub(crate) tenant: Tenant,
    /// Which GPUs it gets.
    pub(crate) gpu: Gpu,
    /// The devices it will see.
    pub(crate) devices: Vec<Device>,
    /// Its limits.
    pub(crate) limits: Limits,
    /// Notes for the user, if any.
    pub(crate) note: Option<String>,
    /// Links to a software GPU, to be kept as long as the program runs.
    pub(crate) links: Option<Links>,
}

/// Checks the limits first, because they need nothing; then the library, then the GPU.
pub(crate) fn make(share: &Share, inherited: Environment) -> Result<Plan, Failure> {
    let mut environment = inherited;
    let gpu: Gpu = share.gpu.parse()?;
    let origins = settings::apply(share, &mut environment)?;
    log_file::check(&environment)?;
    let tenant = tenant::choose(share.name.as_deref(), &environment)?;
    environment.insert(TENANT.into(), tenant.name.as_str().into());
    preload(&mut environment)?;
    let links = gpu.apply(&mut environment, tenant.name.as_str())?;
    let devices = find_devices(&gpu, &environment)?;
    let uuids: Vec<_> = devices.iter().map(|device| device.uuid).collect();
    let limits = settings::on_devices(share, &mut environment, &origins, &uuids)?;
    check_devices(&limits, &devices).map_err(|mut failure| {
        settings::blame_flags(&share.amounts, &share.terms, &mut failure.message);
        failure
    })?;
    // A program inside a tenant inherits values for the tenant's devices. It may see fewer.
    let inherits = daemon::is_container() || tenant.is_marked(&environment);
    let unseen = limits.unseen(&uuids, |variable| !inherits || origins.have(variable));
    // Nothing limits a program that the library stays out of. It does not stay out of a tenant's.
    let unseen = unseen.filter(|_| inherits || !limits.disabled());
    if let Some(error) = unseen {
        return Err(origins.blame(error).into());
    }
    let note = mps::apply(share, &limits, &devices, &mut environment)?;
    Ok(Plan {
        environment,
        tenant,
        gpu,
        devices,
        limits,
        note,
        links,
    })
}

/// Puts the interposer first. Another copy of it would charge everything twice, so it is removed.
fn preload(environment: &mut Environment) -> Result<(), Failure> {
    preload::insert(environment, &library()?);
    preload::allow_before_sanitizer(environment);
    Ok(())
}

/// The interposer as `LD_PRELOAD` names it. It loads.
pub(crate) fn library() -> Result<PathBuf, Failure> {
    // A container's preload file names its own one. Another copy beside it would charge everything
    // twice; the same one is loaded once.
    let library = match fs::canonicalize(LIBRARY) {
        Ok(own) if daemon::is_container() => own,
        _ => artefacts::find(INTERPOSER)?,
    };
    let library = preload::reference(&library);
    if library.to_string_lossy().contains([':', ' ']) {
        return Err(Failure::ours(format!(
            "{} cannot be preloaded, because the dynamic linker splits {} at spaces and colons; \
             move gpushare to a path without them",
            library.display(),
            preload::VARIABLE
        )));
    }
    check_loads(&library)?;
    Ok(library)
}

/// The dynamic linker only warns of a preload it cannot load and goes on without. For us that is a
/// missing limit, so it is tried on ourselves first.
fn check_loads(library: &Path) -> Result<(), Failure> {
    let trial = Command::new(artefacts::own_executable()?)
        .arg("--version")
        .env_clear()
        .env(preload::VARIABLE, library)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::ours(format!("cannot start myself: {error}")))?;
    let said = String::from_utf8_lossy(&trial.stderr);
    let said = match trial.status.success() {
        true => complaints(&said),
        false => said.trim().to_owned(),
    };
    if trial.status.success() && said.is_empty() {
        return Ok(());
    }
    Err(Failure::ours(format!(
        "{} cannot be loaded ({}): {said}; use the package built for older systems (scripts/package.sh)",
        library.display(),
        trial.status
    )))
}

/// The lines of the dynamic linker that are about the interposer. Another library of
/// [`preload::FILE`] may be missing for every program of the machine.
fn complaints(said: &str) -> String {
    let ours = said.lines().filter(|line| {
        !line.contains(&format!("from {} ", preload::FILE)) || line.contains(INTERPOSER)
    });
    ours.collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// Refuses managed memory (`uvm`) that the host memory of the program cannot hold: all of it may be
/// there at a time, and the kernel would end the program.
fn check_host(limits: &Limits, devices: &[Device]) -> Result<(), Failure> {
    let mut needed = 0_u64;
    for device in devices {
        let held = limits.for_device(device.ordinal, &device.uuid, device.memory)?;
        needed = needed.saturating_add(held.limit.unwrap_or(device.memory));
    }
    let (most, whose) = host::most();
    let problem = format!(
        "its memory may all be on the host, where {} are needed, and {whose} has {}",
        Bytes(needed),
        Bytes(most)
    );
    match limits.policy().refuse_managed(&problem) {
        Some(error) if needed > most => Err(error.into()),
        _ => Ok(()),
    }
}

/// The devices that the program will see.
fn find_devices(gpu: &Gpu, environment: &Environment) -> Result<Vec<Device>, Failure> {
    let mut probed = environment.clone();
    // Faults injected into the program are not meant for the question asked before it starts.
    probed.remove(OsStr::new("SOFTGPU_FAIL"));
    probed.remove(OsStr::new("SOFTGPU_LOCK"));
    gpu.devices(&probed)
}

/// Errors that only the device's size shows, such as a request above it, are reported now and not
/// at the first CUDA call.
fn check_devices(limits: &Limits, devices: &[Device]) -> Result<(), Failure> {
    for device in devices {
        limits.for_device(device.ordinal, &device.uuid, device.memory)?;
        let problem = "this GPU has no virtual memory management, by which memory is moved";
        if let Some(error) = limits
            .policy()
            .refuse_moves(problem)
            .filter(|_| !device.vmm)
        {
            return Err(error.into());
        }
        let problem = "this GPU has no concurrent access to managed memory, without which that \
                       cannot be more than the GPU has";
        if let Some(error) = limits
            .policy()
            .refuse_managed(problem)
            .filter(|_| !device.managed)
        {
            return Err(error.into());
        }
    }
    check_host(limits, devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_linker_says_of_another_preload_is_no_complaint_of_ours() {
        let of = |library: &str, list: &str| {
            format!(
                "ERROR: ld.so: object '{library}' from {list} cannot be preloaded (cannot open shared object file): ignored.\n"
            )
        };
        let file = "/etc/ld.so.preload";
        assert_eq!(complaints(""), "");
        assert_eq!(complaints(&of("/opt/gone.so", file)), "");
        let ours = of("/opt/$LIB/libgpushare.so", "LD_PRELOAD");
        for said in [
            ours.clone(),
            of("/opt/gone.so", file) + &ours,
            of("/opt/libgpushare.so", file),
            "a line of no list".to_owned(),
        ] {
            let last = said.lines().last().unwrap();
            assert_eq!(complaints(&said), last);
        }
    }
}

//! Whose limits hold: in a container that gpushare was injected into, those of the mounted socket
//! folder, whatever the environment says.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use gpushare_protocol::injection::{ALLOW, FOLDER, is_injected};
use gpushare_protocol::limits::{LimitError, Limits};
use gpushare_protocol::paths::{IN_FILES, TENANT, TenantName};

use crate::guest::fork::ForkLocal;

/// The variables that an injected container has no use for.
const SWITCHES: [&str; 2] = ["GPUSHARE_SOCKET", "GPUSHARE_DISABLE"];

/// This process's limits by its environment. In a container the mounted folder takes the place of
/// any other socket, and the switch counts for nothing.
///
/// # Errors
/// As [`Limits::from_env`].
pub(crate) fn limits() -> Result<Limits, LimitError> {
    Limits::from_env(under(is_injected(Path::new(FOLDER)), std::env::vars_os()))
}

/// The parts of the environment that a look at the tenant needs.
#[derive(Debug)]
pub(super) struct Kept {
    /// As [`limits`] says.
    pub(super) limits: Result<Limits, LimitError>,
    /// Whether some are for single devices.
    pub(super) name_devices: bool,
    /// The tenant's name, if one is set that is a name.
    pub(super) tenant: Option<TenantName>,
    /// `XDG_RUNTIME_DIR`.
    pub(super) runtime_folder: Option<PathBuf>,
    /// The folder of the tenant's books, where `run` said it.
    pub(super) mark: Option<OsString>,
}

/// The environment at the first look of this process. It is not read at each look: NVML reads no
/// variable there, and while it is read another thread of the program may change it. Before glibc
/// 2.41 that gives the list back which is being read.
pub(super) fn kept() -> &'static Kept {
    static KEPT: ForkLocal<Kept> = ForkLocal::new();
    KEPT.get_or(|| {
        let limits = limits();
        let name = std::env::var_os(TENANT).filter(|name| !name.is_empty());
        Kept {
            name_devices: (limits.as_ref())
                .is_ok_and(|limits| limits.unseen(&[], |_| true).is_some()),
            limits,
            tenant: name.and_then(|name| TenantName::parse(TENANT, &name.to_string_lossy()).ok()),
            runtime_folder: std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
            mark: std::env::var_os(IN_FILES),
        }
    })
}

fn under(
    injected: bool,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    if !injected {
        return environment.collect();
    }
    let is_switch = |name: &OsString| SWITCHES.iter().any(|switch| name == switch);
    let rest = environment.filter(|(name, _)| !is_switch(name));
    rest.chain([(SWITCHES[0].into(), FOLDER.into())]).collect()
}

/// Whether the operator lets programs start without limits while no daemon answers.
pub(crate) fn allows_without_daemon() -> bool {
    let folder = Path::new(FOLDER);
    is_injected(folder) && fs::symlink_metadata(folder.join(ALLOW)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(all: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        let pair = |(name, value): &(&str, &str)| ((*name).into(), (*value).into());
        all.iter().map(pair).collect()
    }

    #[test]
    fn an_injected_container_has_one_socket_and_no_switch() {
        let set = pairs(&[
            ("GPUSHARE_SOCKET", "relative"),
            ("GPUSHARE_DISABLE", "1"),
            ("GPUSHARE_MEM_LIMIT", "1GiB"),
        ]);
        let limits = Limits::from_env(under(true, set.clone().into_iter())).unwrap();
        assert_eq!(limits.socket(), Some(Path::new(FOLDER)));
        assert!(!limits.disabled() && limits.any());
        assert_eq!(under(false, set.clone().into_iter()), set);
        let bare = Limits::from_env(under(true, [].into_iter())).unwrap();
        assert_eq!(bare.socket(), Some(Path::new(FOLDER)));
    }
}

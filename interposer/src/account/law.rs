//! Whose limits hold: in a container that gpushare was injected into, those of the mounted socket
//! folder, whatever the environment says.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use gpushare_protocol::injection::{ALLOW, FOLDER, is_injected};
use gpushare_protocol::limits::{LimitError, Limits};

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

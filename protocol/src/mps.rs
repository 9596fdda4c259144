//! NVIDIA's Multi-Process Service: whether a process is a client of its control daemon, and its
//! share of the multiprocessors.
//!
//! A client's kernels run beside those of other clients in one context, so turns would undo MPS's
//! sharing. The driver connects to the daemon's control socket when CUDA starts, if there is one in
//! the folder that `CUDA_MPS_PIPE_DIRECTORY` names or in the default one (NVIDIA, "Multi-Process
//! Service", environment variables). The socket file stays when the daemon has gone, so the test is
//! whether a process listens on it.

use crate::units::Permille;
use std::ffi::OsStr;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// The variable that names the folder of the daemon's sockets and pipes.
pub const PIPE_DIRECTORY: &str = "CUDA_MPS_PIPE_DIRECTORY";
/// The folder where it is not set.
pub const DEFAULT_DIRECTORY: &str = "/tmp/nvidia-mps";
/// The socket of it that clients connect to. It keeps messages apart (`SOCK_SEQPACKET`).
pub const CONTROL: &str = "control";
/// The variable that bounds a client's part of the multiprocessors, in percent. The driver reads it
/// when it makes a context.
pub const ACTIVE_THREADS: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

/// `EPROTOTYPE` of Linux: a process has that socket, and it is of another kind.
const OTHER_KIND: i32 = 91;

/// Facts about a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The error number of connecting a datagram socket to the control socket, by [`probe`].
    pub probed: Option<i32>,
    /// The driver's answer (`CU_DEVICE_ATTRIBUTE_MPS_ENABLED`); `None` before it runs, and where it
    /// does not know the question.
    pub driver: Option<bool>,
}

/// Whether the process is an MPS client. The driver's word counts where there is one.
#[must_use]
pub fn is_client(facts: Facts) -> bool {
    let has_daemon = facts.probed == Some(OTHER_KIND);
    facts.driver.unwrap_or(has_daemon)
}

/// Where the control socket lies, by the value of [`PIPE_DIRECTORY`]. An empty one names no folder.
#[must_use]
pub fn control(variable: Option<&OsStr>) -> Option<PathBuf> {
    let folder = variable.unwrap_or_else(|| OsStr::new(DEFAULT_DIRECTORY));
    (!folder.is_empty()).then(|| Path::new(folder).join(CONTROL))
}

/// Whether a process has the control socket, without a connection: a datagram socket is refused for
/// its kind, at once, and the listening process notices nothing.
#[must_use]
pub fn probe(variable: Option<&OsStr>) -> Option<i32> {
    let path = control(variable)?;
    let refused = UnixDatagram::unbound().and_then(|socket| socket.connect(path));
    refused.err()?.raw_os_error()
}

/// The value of [`ACTIVE_THREADS`] that keeps a client within `cap`: whole percent, at least one. A
/// present value `says` that is no larger stays.
#[must_use]
pub fn active_threads(cap: Permille, says: Option<&OsStr>) -> String {
    let ours = f64::from((cap.get() / 10).max(1));
    percentage(says)
        .filter(|theirs| *theirs <= ours)
        .unwrap_or(ours)
        .to_string()
}

/// Whether MPS keeps `cap`, in thousandths, for a client whose [`ACTIVE_THREADS`] is `says`.
#[must_use]
pub fn keeps(cap: u64, says: Option<&OsStr>) -> bool {
    percentage(says).is_some_and(|percent| percent * 10.0 <= cap as f64)
}

fn percentage(says: Option<&OsStr>) -> Option<f64> {
    let percent = says?.to_str()?.trim().parse::<f64>().ok()?;
    (percent > 0.0 && percent <= 100.0).then_some(percent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::{env, fs, process};

    #[test]
    fn the_driver_decides_and_before_it_the_socket_does() {
        let client = |probed, driver| is_client(Facts { probed, driver });
        assert!(client(Some(OTHER_KIND), None), "a process has the socket");
        // No process listens any more; it does not exist; it may not be opened; it accepts
        // datagrams.
        for probed in [Some(111), Some(2), Some(13), None] {
            assert!(!client(probed, None), "{probed:?}");
            assert!(client(probed, Some(true)));
        }
        assert!(!client(Some(OTHER_KIND), Some(false)), "not believed");
    }

    #[test]
    fn the_folder_is_the_variables_or_the_default_and_an_empty_one_is_none() {
        let at = |variable: Option<&str>| control(variable.map(OsStr::new));
        assert_eq!(at(None), Some("/tmp/nvidia-mps/control".into()));
        assert_eq!(at(Some("/run/mps")), Some("/run/mps/control".into()));
        assert_eq!(at(Some("")), None);
    }

    #[test]
    fn a_socket_counts_only_while_a_process_has_it() {
        let folder = env::temp_dir().join(format!("mps-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let look = || {
            let probed = probe(Some(folder.as_os_str()));
            is_client(Facts {
                probed,
                driver: None,
            })
        };
        let control = folder.join(CONTROL);
        assert!(!look(), "there is none");
        fs::write(&control, "").unwrap();
        assert!(!look(), "a file is no socket");
        fs::remove_file(&control).unwrap();
        let daemon = UnixListener::bind(&control).unwrap();
        assert!(look());
        daemon.set_nonblocking(true).unwrap();
        assert!(daemon.accept().is_err(), "it hears nothing");
        drop(daemon);
        assert!(control.exists() && !look(), "a socket that was left behind");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_cap_becomes_whole_percent_and_never_raises_what_is_set() {
        let said = |cap, says: Option<&str>| {
            active_threads(Permille::new(cap).unwrap(), says.map(OsStr::new))
        };
        assert_eq!(said(300, None), "30");
        assert_eq!(said(125, None), "12", "never more than the cap");
        assert_eq!(said(300, Some("20")), "20");
        assert_eq!(said(300, Some("12.5")), "12.5");
        assert_eq!(said(300, Some("50")), "30");
        assert_eq!(said(300, Some("none")), "30");
    }

    #[test]
    fn a_cap_is_kept_by_a_percentage_that_is_no_higher() {
        for (says, kept) in [
            (Some("30"), true),
            (Some("10.5"), true),
            (Some("31"), false),
            (Some("0"), false),
            (Some("x"), false),
            (None, false),
        ] {
            assert_eq!(keeps(300, says.map(OsStr::new)), kept, "{says:?}");
        }
    }
}

//! The edits: mounts and environment variables.

use gpushare_protocol::injection::{FOLDER, LIBRARY_FOLDER, PRELOAD, PRELOADED};

/// The host's facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The folder of this version's library.
    pub library: String,
    /// The folder of the tenant's socket, and of its preload file.
    pub tenant: String,
}

/// Something of the host in the container: read-only, without devices and set-user-id programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The path on the host.
    pub source: String,
    /// The path in the container.
    pub destination: &'static str,
    /// Whether it is a folder, else a file.
    pub is_folder: bool,
}

/// The mount options of every edit. Not `noexec`: the library is mapped executable.
pub const OPTIONS: [&str; 4] = ["ro", "nosuid", "nodev", "bind"];

/// All that changes about a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edits {
    /// Variables of every process; hints only, the mounted folder is the law.
    pub environment: Vec<(&'static str, &'static str)>,
    /// In the order in which they are mounted.
    pub mounts: Vec<Mount>,
}

impl Edits {
    /// The edits that the host's facts call for.
    #[must_use]
    pub fn of(host: &Host) -> Self {
        let folder = |source: &str, destination| Mount {
            source: source.to_owned(),
            destination,
            is_folder: true,
        };
        Self {
            environment: vec![("GPUSHARE_SOCKET", FOLDER)],
            mounts: vec![
                folder(&host.library, LIBRARY_FOLDER),
                folder(&host.tenant, FOLDER),
                // Last: from then on every program of the container loads what the others mounted.
                Mount {
                    source: format!("{}/{PRELOAD}", host.tenant),
                    destination: PRELOADED,
                    is_folder: false,
                },
            ],
        }
    }
}

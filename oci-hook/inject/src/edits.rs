//! The edits: mounts and environment variables.

use gpushare_protocol::injection::{FOLDER, LIBRARY_FOLDER, PRELOAD, PRELOADED, PRELOADED_BY_NIX};

/// The host's facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The folder of this version's library.
    pub library: String,
    /// The folder of the tenant's socket, and of its preload file.
    pub tenant: String,
}

/// A place in the container over which something is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its path.
    pub path: &'static str,
    /// Whether it is a folder, else a file.
    pub is_folder: bool,
}

impl Place {
    /// The library's folder.
    pub const LIBRARY: Self = Self::folder(LIBRARY_FOLDER);
    /// The folder of the tenant's socket.
    pub const TENANT: Self = Self::folder(FOLDER);
    /// The preload file.
    pub const PRELOAD: Self = Self::file(PRELOADED);
    /// The same file for programs of Nix.
    pub const PRELOAD_BY_NIX: Self = Self::file(PRELOADED_BY_NIX);
    /// All, in the order in which they are mounted. The preload files are the last: from then
    /// on every program of the container loads what the others mounted.
    pub const ALL: [Self; 4] = [
        Self::LIBRARY,
        Self::TENANT,
        Self::PRELOAD_BY_NIX,
        Self::PRELOAD,
    ];

    const fn file(path: &'static str) -> Self {
        Self {
            path,
            is_folder: false,
        }
    }

    const fn folder(path: &'static str) -> Self {
        Self {
            path,
            is_folder: true,
        }
    }
}

/// Something of the host in the container: read-only, without devices and set-user-id programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The path on the host.
    pub source: String,
    /// The place in the container.
    pub place: Place,
}

impl Mount {
    /// The library's folder.
    #[must_use]
    pub fn of_library(library: &str) -> Self {
        Self {
            source: library.to_owned(),
            place: Place::LIBRARY,
        }
    }

    /// The folder of a tenant's socket, and the preload file in it at both of its places.
    #[must_use]
    pub fn of_tenant(folder: &str) -> [Self; 3] {
        let mount = |source, place| Self { source, place };
        let file = format!("{folder}/{PRELOAD}");
        [
            mount(folder.to_owned(), Place::TENANT),
            mount(file.clone(), Place::PRELOAD_BY_NIX),
            mount(file, Place::PRELOAD),
        ]
    }

    /// The options by which an engine mounts it. The library is mapped executable. Of a tenant's
    /// files nothing is executed, and Debian mounts `/run` with `noexec`: in a container with a
    /// user namespace the kernel locks that option, and runc before 1.2 does not ask for it by
    /// itself.
    #[must_use]
    pub fn options(&self) -> &'static [&'static str] {
        match self.place == Place::LIBRARY {
            true => &["ro", "nosuid", "nodev", "bind"],
            false => &["ro", "nosuid", "nodev", "noexec", "bind"],
        }
    }
}

/// All that changes about a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edits {
    /// Variables of every process; hints only, the mounted folder is the law.
    pub environment: Vec<(&'static str, &'static str)>,
    /// In the order of [`Place::ALL`].
    pub mounts: Vec<Mount>,
}

impl Edits {
    /// The edits that the host's facts call for.
    #[must_use]
    pub fn of(host: &Host) -> Self {
        Self {
            environment: vec![("GPUSHARE_SOCKET", FOLDER)],
            mounts: [
                &[Mount::of_library(&host.library)][..],
                &Mount::of_tenant(&host.tenant),
            ]
            .concat(),
        }
    }
}

//! What lies where in a container that gpushare was injected into.
//!
//! The paths are part of the contract between the library and what mounts it: a container keeps its
//! library for months.

/// The folder of the tenant's socket in a container. It is mounted as a whole, so that nobody in
/// the container can rename, remove or close it. On a host it is the daemon's own folder.
pub const FOLDER: &str = "/run/gpushare";
/// The name of a file in a tenant's socket folder that no daemon's own folder has. Where
/// [`FOLDER`] has it, the daemon's registration is the law whatever the environment says.
pub const MARK: &str = "container";
/// The folder of the library in a container.
pub const LIBRARY_FOLDER: &str = "/usr/lib/gpushare";
/// The library in a container: what the preload file names.
pub const LIBRARY: &str = "/usr/lib/gpushare/libgpushare.so";
/// The file in a container that names libraries to preload into every program, ld.so(8).
pub const PRELOADED: &str = "/etc/ld.so.preload";
/// The name of a tenant's preload file in its socket folder on the host: ours first, then the
/// image's own lines.
pub const PRELOAD: &str = "ld.so.preload";
/// The name of an empty file in a tenant's socket folder: programs that find no daemon start
/// without limits.
pub const ALLOW: &str = "allow-without-daemon";

//! Brings gpushare into a container at the OCI stage `createRuntime`: its mounts are made, none of
//! its programs has run.
//!
//! Nothing of the container is executed, and no path of it is trusted: everything in it is reached
//! through held descriptors by `openat2`, and mounted from descriptor to descriptor. All that is
//! written are empty mount points in the container's own file system. [`gpushare_inject`] reads the
//! container's request, and the daemon decides on it.
#![deny(unsafe_code)]

pub mod bundle;
pub mod hook;
pub mod host;
pub mod log;
pub mod mandatory;
pub mod mounts;
pub mod program;
pub mod rootfs;
pub mod selinux;
pub mod talk;
pub mod telling;
pub mod wrapper;

/// Why the container is refused: one line for a person.
#[derive(Debug)]
pub struct Failure(pub String);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // One line, whatever a container's configuration has in it.
        for letter in self.0.chars() {
            match letter.is_control() {
                true => write!(f, "{}", letter.escape_default())?,
                false => write!(f, "{letter}")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

impl From<gpushare_inject::Refusal> for Failure {
    fn from(refusal: gpushare_inject::Refusal) -> Self {
        Self(refusal.0)
    }
}

/// Puts a reason before an error of the system.
pub(crate) fn cannot<E: std::fmt::Display>(what: &str) -> impl FnOnce(E) -> Failure {
    let what = what.to_owned();
    move |error| Failure(format!("cannot {what}: {error}"))
}

//! What the daemon said last of containers that have a GPU and ask for nothing, where it does not
//! answer.

use std::fs::File;
use std::path::Path;

use gpushare_inject::rules;
use gpushare_protocol::injection::MANDATORY;
use rustix::fs::{FileType, Mode, OFlags, open};

use crate::bundle::{bounded, trust_hosts};
use crate::{Failure, cannot};

/// Bytes of most texts, and of any.
const SIZE: (usize, u64) = (1 << 10, 1 << 20);

/// Whether the rules of the daemon with this control socket, as it told them last, let a container
/// with these labels run as it is. A file that cannot be read, or that others may write, lets none.
#[must_use]
pub fn allows(daemon: &Path, labels: &[(String, String)]) -> bool {
    let told = daemon.parent().map(|own| told(&own.join(MANDATORY)));
    told.is_some_and(|told| told.is_ok_and(|text| rules::allow(&text, labels)))
}

fn told(path: &Path) -> Result<Vec<u8>, Failure> {
    let what = path.display().to_string();
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = open(path, flags, Mode::empty()).map_err(cannot(&format!("open {what}")))?;
    trust_hosts(&file, FileType::RegularFile, &what)?;
    bounded(&mut File::from(file), SIZE, &what)
}

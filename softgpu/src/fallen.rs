//! `SOFTGPU_FALLEN=ordinal:ERROR:file`: while the file exists the device is off the bus. Calls that
//! name it or use a context on it return the error. Work on it goes on, and no call tells of that.
//! NVML has one error for it, and has that of all lookups but by an index too.

use std::path::PathBuf;
use std::sync::OnceLock;

use gpushare_cuda_abi::cuda::CUresult;

use crate::error::Result;
use crate::fail::error_of;

/// The environment variable that holds the device, the error and the file's path.
pub const VARIABLE: &str = "SOFTGPU_FALLEN";

#[derive(Debug, PartialEq, Eq)]
struct Fallen {
    ordinal: u32,
    error: CUresult,
    file: PathBuf,
}

/// Whether a device can be reached.
///
/// # Errors
/// What the variable says, while its file exists.
pub fn check(ordinal: u32) -> Result {
    match fallen() {
        Some(fallen) if fallen.ordinal == ordinal => Err(fallen.error),
        _ => Ok(()),
    }
}

/// The ordinal of the device that is off the bus, if any is.
pub fn ordinal() -> Option<u32> {
    fallen().map(|fallen| fallen.ordinal)
}

fn fallen() -> Option<&'static Fallen> {
    static FALLEN: OnceLock<Option<Fallen>> = OnceLock::new();
    let fallen = FALLEN.get_or_init(|| {
        let text = std::env::var(VARIABLE).ok()?;
        let fallen = parse(&text);
        if fallen.is_none() {
            eprintln!("softgpu: {VARIABLE}: `{text}` is not ordinal:ERROR:file");
        }
        fallen
    });
    fallen.as_ref().filter(|fallen| fallen.file.exists())
}

fn parse(text: &str) -> Option<Fallen> {
    let mut parts = text.splitn(3, ':');
    Some(Fallen {
        ordinal: parts.next()?.parse().ok()?,
        error: CUresult(error_of(parts.next()?)?),
        file: PathBuf::from(parts.next()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fallen_device_has_a_number_an_error_and_a_file() {
        let fallen = parse("1:CUDA_ERROR_UNKNOWN:/tmp/a:b").expect("all are there");
        assert_eq!((fallen.ordinal, fallen.error), (1, CUresult::UNKNOWN));
        assert_eq!(fallen.file, PathBuf::from("/tmp/a:b"));
        for text in [
            "1:CUDA_ERROR_UNKNOWN",
            "1:NO_SUCH_ERROR:/tmp/a",
            "x:999:/tmp/a",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}

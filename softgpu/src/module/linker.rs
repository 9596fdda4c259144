//! The just-in-time linker: it accepts any inputs and returns an opaque image.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::{CUjitInputType, CUlinkState, CUresult};

use crate::error::Result;
use crate::handle::Handles;

static LINKS: Handles<Mutex<Link>> = Handles::new();

/// The first bytes of every linked image, to distinguish it from its inputs.
const MAGIC: &[u8] = b"softgpu linked image\n";

#[derive(Debug, Default)]
struct Link {
    inputs: usize,
    bytes: Vec<u8>,
    image: Option<Box<[u8]>>,
}

/// One input.
#[derive(Debug)]
pub struct LinkInput {
    /// Its declared kind.
    pub kind: CUjitInputType,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Starts a link.
pub fn create() -> CUlinkState {
    CUlinkState(std::ptr::without_provenance_mut(
        LINKS.insert(Arc::default()),
    ))
}

/// Adds an input.
///
/// # Errors
/// `INVALID_HANDLE` if the handle names no link or the link is complete, `INVALID_VALUE` for an
/// unknown kind, `INVALID_IMAGE` for an empty input.
pub fn add(link: CUlinkState, input: &LinkInput) -> Result {
    let link = LINKS.get(link.0.addr()).ok_or(CUresult::INVALID_HANDLE)?;
    let mut link = held(&link);
    if link.image.is_some() {
        return Err(CUresult::INVALID_HANDLE);
    }
    if input.kind >= CUjitInputType::NUM_INPUT_TYPES {
        return Err(CUresult::INVALID_VALUE);
    }
    if input.bytes.is_empty() {
        return Err(CUresult::INVALID_IMAGE);
    }
    link.inputs += 1;
    link.bytes.extend_from_slice(&input.bytes);
    Ok(())
}

/// Completes a link. Returns the image's address and length, valid until the link is destroyed.
///
/// # Errors
/// `INVALID_HANDLE` if the handle names no link, `INVALID_VALUE` without inputs.
pub fn complete(link: CUlinkState) -> Result<(usize, usize)> {
    let link = LINKS.get(link.0.addr()).ok_or(CUresult::INVALID_HANDLE)?;
    let mut link = held(&link);
    if link.inputs == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let inputs = std::mem::take(&mut link.bytes);
    let image = link
        .image
        .get_or_insert_with(|| [MAGIC, &inputs].concat().into_boxed_slice());
    Ok((image.as_ptr().expose_provenance(), image.len()))
}

/// Destroys a link, complete or not.
///
/// # Errors
/// `INVALID_HANDLE` if the handle names no link.
pub fn destroy(link: CUlinkState) -> Result {
    LINKS
        .remove(link.0.addr())
        .map(drop)
        .ok_or(CUresult::INVALID_HANDLE)
}

fn held(link: &Mutex<Link>) -> MutexGuard<'_, Link> {
    link.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_needs_inputs_and_accepts_none_after_its_completion() {
        let link = create();
        assert_eq!(complete(link), Err(CUresult::INVALID_VALUE));
        let input = LinkInput {
            kind: CUjitInputType::INPUT_PTX,
            bytes: b"ptx".to_vec(),
        };
        assert_eq!(add(link, &input), Ok(()));
        let (first, again) = (complete(link).unwrap(), complete(link).unwrap());
        assert_eq!(first, again);
        assert_eq!(first.1, MAGIC.len() + 3);
        assert_eq!(add(link, &input), Err(CUresult::INVALID_HANDLE));
        assert_eq!(destroy(link), Ok(()));
        assert_eq!(destroy(link), Err(CUresult::INVALID_HANDLE));
    }
}

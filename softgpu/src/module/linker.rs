//! The just-in-time linker. Of PTX texts it makes one text that holds them all; any other inputs
//! become an opaque image.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::{CUjitInputType, CUlinkState, CUresult};

use crate::error::Result;
use crate::handle::Handles;

static LINKS: Handles<Mutex<Link>> = Handles::new();

/// The first bytes of every linked image, to distinguish it from its inputs.
const MAGIC: &[u8] = b"softgpu linked image\n";
/// The first line of a text that was linked, and of one that was linked with a limit of registers.
const COMMENT: &str = "// softgpu linked image\n";
const LIMITED: &str = "// softgpu linked image, registers: ";

#[derive(Debug, Default)]
struct Link {
    inputs: usize,
    bytes: Vec<u8>,
    /// The PTX texts, if there is no other input.
    text: Option<String>,
    /// The registers that a function may use.
    most_registers: Option<u32>,
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

/// Starts a link. Functions compiled from PTX may use so many registers.
pub fn create(most_registers: Option<u32>) -> CUlinkState {
    let link = Link {
        most_registers,
        ..Link::default()
    };
    CUlinkState(std::ptr::without_provenance_mut(
        LINKS.insert(Arc::new(Mutex::new(link))),
    ))
}

/// The limit of registers that a text was linked with.
pub(super) fn most_registers(text: &str) -> Option<u32> {
    text.strip_prefix(LIMITED)?.lines().next()?.parse().ok()
}

/// Adds an input.
///
/// # Errors
/// `INVALID_HANDLE` if the handle names no link or the link is complete, `INVALID_VALUE` for an
/// unknown kind, `INVALID_IMAGE` for an empty input, `INVALID_PTX` for a PTX text with errors.
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
    let text = ptx(&input.bytes);
    if let Some(Err(_)) = text.as_ref().map(|text| softgpu_ptx::Module::parse(text)) {
        return Err(CUresult::INVALID_PTX);
    }
    let before = if link.inputs == 0 {
        Some(String::new())
    } else {
        link.text.take()
    };
    link.text = before.zip(text).map(|(before, text)| before + &text + "\n");
    link.inputs += 1;
    link.bytes.extend_from_slice(&input.bytes);
    Ok(())
}

/// The text of a PTX module, up to its NUL.
fn ptx(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0);
    let text = &bytes[..end.unwrap_or(bytes.len())];
    softgpu_ptx::Module::is_ptx(text).then(|| String::from_utf8_lossy(text).into_owned())
}

/// Completes a link. Returns the image's address and length, valid until the link is destroyed.
///
/// # Errors
/// `INVALID_HANDLE` if the handle names no link, `INVALID_VALUE` without inputs, `INVALID_PTX` if
/// the texts do not fit together.
pub fn complete(link: CUlinkState) -> Result<(usize, usize)> {
    let link = LINKS.get(link.0.addr()).ok_or(CUresult::INVALID_HANDLE)?;
    let mut link = held(&link);
    if link.inputs == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let inputs = std::mem::take(&mut link.bytes);
    let linked = match link.text.take() {
        Some(text) if softgpu_ptx::Module::parse(&text).is_err() => {
            return Err(CUresult::INVALID_PTX);
        }
        // The NUL belongs to the image: a copy of it is a text too.
        Some(text) => {
            let first = link
                .most_registers
                .map_or_else(|| COMMENT.to_owned(), |most| format!("{LIMITED}{most}\n"));
            [first.as_bytes(), text.as_bytes(), b"\0"].concat()
        }
        None => [MAGIC, &inputs].concat(),
    };
    let image = link.image.get_or_insert_with(|| linked.into_boxed_slice());
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
    fn texts_are_linked_to_one_text_that_shares_their_names() {
        let text = |body: &str| LinkInput {
            kind: CUjitInputType::INPUT_PTX,
            bytes: format!(".version 8.0\n.target sm_90\n.address_size 64\n{body}\0").into_bytes(),
        };
        let link = create(None);
        assert_eq!(
            add(
                link,
                &text(".extern .func f();\n.visible .entry k() { call f; ret; }")
            ),
            Ok(())
        );
        assert_eq!(add(link, &text("nonsense")), Err(CUresult::INVALID_PTX));
        assert_eq!(add(link, &text(".visible .func f() { trap; }")), Ok(()));
        let held = LINKS.get(link.0.addr()).unwrap();
        complete(link).unwrap();
        let image = held.lock().unwrap().image.clone().unwrap();
        assert!(image.ends_with(b"\0"));
        let linked = super::super::image::Image::read(&image);
        assert_eq!(linked.ptx().unwrap().kernel_names(), ["k"]);
        assert_eq!(destroy(link), Ok(()));
        let twice = create(None);
        for _ in 0..2 {
            assert_eq!(add(twice, &text(".visible .func f() { ret; }")), Ok(()));
        }
        assert_eq!(complete(twice), Err(CUresult::INVALID_PTX));
    }

    #[test]
    fn a_limit_of_registers_binds_functions_that_would_use_more() {
        let registers = |body: &str, most| {
            let link = create(most);
            let text = format!(
                ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() {body}\0"
            );
            let input = LinkInput {
                kind: CUjitInputType::INPUT_PTX,
                bytes: text.into_bytes(),
            };
            assert_eq!(add(link, &input), Ok(()));
            complete(link).unwrap();
            let held = LINKS.get(link.0.addr()).unwrap();
            let image = held.lock().unwrap().image.clone().unwrap();
            let told = super::super::image::Image::read(&image).attributes("k");
            told[&gpushare_cuda_abi::cuda::CUfunction_attribute::NUM_REGS.0]
        };
        let (many, few) = ("{ .reg .b32 %r<90>; ret; }", "{ .reg .b32 %r<20>; ret; }");
        assert_eq!(registers(many, None), 90);
        assert_eq!(registers(many, Some(57)), 57);
        assert_eq!(registers(few, Some(57)), 20);
        assert_eq!(registers(many, Some(1)), 16);
        let told = ".maxnreg 40 { .reg .b32 %r<90>; ret; }";
        assert_eq!(registers(told, None), 40);
        assert_eq!(registers(told, Some(57)), 40);
    }

    #[test]
    fn a_link_needs_inputs_and_accepts_none_after_its_completion() {
        let link = create(None);
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

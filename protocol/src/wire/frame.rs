//! Frames: a length, a request id, a body. Incomplete is not an error; too long is, before anything
//! is allocated.

use serde::{Serialize, de::DeserializeOwned};

/// The longest body in bytes. Commands and hooks send the longest messages: environments, labels
/// and devices. A client that claims more is cut off.
pub const MAX_FRAME: usize = 256 * 1024;

/// Bytes before a body: its length (u32, little endian), then the request id (u32, little endian).
const HEADER: usize = 8;

/// Why a stream of bytes is no stream of frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameError {
    /// The length prefix exceeds [`MAX_FRAME`]: the peer is broken or hostile, and the connection
    /// ends.
    TooLong {
        /// The claimed length in bytes.
        claimed: usize,
    },
    /// A body did not encode within [`MAX_FRAME`].
    TooLarge,
    /// The body of request `id` is not a message this side knows. The stream itself is still in
    /// step.
    Unknown {
        /// The request to answer with an error.
        id: u32,
    },
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong { claimed } => {
                write!(
                    f,
                    "a frame of {claimed} bytes was announced, the longest is {MAX_FRAME}"
                )
            }
            Self::TooLarge => write!(f, "the message does not fit a frame of {MAX_FRAME} bytes"),
            Self::Unknown { id } => write!(f, "request {id} is no message of this version"),
        }
    }
}

impl std::error::Error for FrameError {}

/// Appends the frame of `message` under request id `id` to `out`.
///
/// # Errors
/// [`FrameError::TooLarge`] if the body exceeds [`MAX_FRAME`]; `out` is then as it was.
pub fn encode<T: Serialize>(id: u32, message: &T, out: &mut Vec<u8>) -> Result<(), FrameError> {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    let body = postcard::to_allocvec(message).map_err(|_| FrameError::TooLarge);
    match body {
        Ok(body) if body.len() <= MAX_FRAME => {
            let length = u32::try_from(body.len()).map_err(|_| FrameError::TooLarge)?;
            out[start..start + 4].copy_from_slice(&length.to_le_bytes());
            out[start + 4..start + HEADER].copy_from_slice(&id.to_le_bytes());
            out.extend_from_slice(&body);
            Ok(())
        }
        _ => {
            out.truncate(start);
            Err(FrameError::TooLarge)
        }
    }
}

/// Decodes one body.
///
/// # Errors
/// [`FrameError::Unknown`] if `body` is no `T` of this version.
pub fn decode<T: DeserializeOwned>(id: u32, body: &[u8]) -> Result<T, FrameError> {
    postcard::from_bytes(body).map_err(|_| FrameError::Unknown { id })
}

/// Cuts a stream of bytes into frames.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
}

impl Decoder {
    /// Takes the bytes just read.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame as (request id, body), or `None` while it is incomplete.
    ///
    /// # Errors
    /// [`FrameError::TooLong`] once the length prefix is too large; nothing was allocated for it.
    pub fn next_frame(&mut self) -> Result<Option<(u32, Vec<u8>)>, FrameError> {
        let pending = &self.buffer[self.start..];
        let Some((length, rest)) = pending.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if length > MAX_FRAME {
            return Err(FrameError::TooLong { claimed: length });
        }
        let Some((id, rest)) = rest.split_first_chunk::<4>() else {
            return Ok(None);
        };
        if rest.len() < length {
            return Ok(None);
        }
        let frame = (u32::from_le_bytes(*id), rest[..length].to_vec());
        self.start += HEADER + length;
        Ok(Some(frame))
    }

    /// How many bytes of memory the part of a frame takes that has come. Once there is none, it
    /// is 0, and the memory of a long frame is given back.
    pub fn held(&mut self) -> usize {
        if !self.is_between_frames() {
            return self.buffer.capacity();
        }
        if self.buffer.capacity() > Self::KEPT {
            *self = Self::default();
        }
        0
    }

    /// Room that is kept for the next frames: most are shorter than 100 bytes.
    const KEPT: usize = 1024;

    /// Whether the stream ends between two frames; if not, the peer went away in the middle of one.
    #[must_use]
    pub fn is_between_frames(&self) -> bool {
        self.buffer.len() == self.start
    }
}

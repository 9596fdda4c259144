//! Captures on streams of green contexts.

use gpushare_cuda_abi::cuda::CUresult;

use super::session::active;
use crate::error::Result;

/// Refuses to record or wait for a green context if one of its streams captures.
///
/// # Errors
/// `STREAM_CAPTURE_UNSUPPORTED`; the captures are invalidated.
pub(crate) fn check_green(domain: u64) -> Result {
    if invalidate(domain) {
        Err(CUresult::STREAM_CAPTURE_UNSUPPORTED)
    } else {
        Ok(())
    }
}

/// Handles the destruction of a green context: captures on its streams become invalid, and ending
/// them fails.
pub(crate) fn green_gone(domain: u64) {
    invalidate(domain);
}

/// Invalidates the captures on streams of `domain`; returns whether there were any.
fn invalidate(domain: u64) -> bool {
    let Some(mut captures) = active() else {
        return false;
    };
    let mut any = false;
    for session in captures.sessions.values_mut() {
        let mut members = session.members.values();
        if members.any(|member| member.domain == domain) {
            session.valid = false;
            any = true;
        }
    }
    any
}

//! Stream capture. No capture can begin yet, so nothing is forbidden and nothing is recorded.

use std::sync::Arc;

use crate::context::Context;
use crate::error::Result;
use crate::exec::event::{Event, EventId};
use crate::exec::stream::Stream;
use crate::exec::{Op, StreamRef};

pub(crate) fn record(_: &StreamRef, _: &Op) -> Result<bool> {
    Ok(false)
}
pub(crate) fn record_event(_: &StreamRef, _: &Arc<Event>, _: bool) -> Result<bool> {
    Ok(false)
}
pub(crate) fn wait_event(_: &StreamRef, _: &Arc<Event>, _: bool) -> Result<bool> {
    Ok(false)
}
pub(crate) fn check_event(_: &Event) -> Result {
    Ok(())
}
pub(crate) fn check_wait(_: &StreamRef) -> Result {
    Ok(())
}
pub(crate) fn check_drain(_: &Arc<Context>) -> Result {
    Ok(())
}
pub(crate) fn is_active(_: &StreamRef) -> Result<bool> {
    Ok(false)
}
pub(crate) fn forbids() -> Result {
    Ok(())
}
pub(crate) fn stream_gone(_: &Stream) {}
pub(crate) fn event_gone(_: EventId) {}
pub(crate) fn forbids_plain(_: &StreamRef) -> Result {
    Ok(())
}

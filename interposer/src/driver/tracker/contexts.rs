//! Contexts: which device one belongs to, and a small number that a pointer's record has room for.
//!
//! A context is registered at the first query about it. Its number is reused only when all records
//! with it have been credited. A green context has no number of its own here: queries about it are
//! answered for its primary context.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpushare_cuda_abi::cuda::CUcontext;

use super::last;
use super::state::{Context, State, Tracker, epoch, next_epoch};
pub(crate) use super::state::{ContextId, Here};
use crate::driver::calls;
use crate::driver::current::CurrentContext;
use crate::driver::device::{self, DeviceKey};
use crate::driver::green;
use crate::guest::fork::ForkLocal;

/// Called when a context is registered.
static NOTICED: ForkLocal<fn()> = ForkLocal::new();

/// Contexts that were registered.
static BORN: AtomicU64 = AtomicU64::new(0);

/// Contexts of more than one device were registered, some time.
static SEVERAL: AtomicBool = AtomicBool::new(false);

/// Whether the process has, or had, contexts on more than one device.
#[inline(always)]
pub(crate) fn on_several_devices() -> bool {
    SEVERAL.load(Ordering::Relaxed)
}

/// A context for as long as it lives: its handle may be another's afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(super) handle: CUcontext,
    pub(super) born: u64,
}

impl Life {
    /// The driver's handle.
    pub(crate) fn handle(self) -> CUcontext {
        self.handle
    }
}

/// Calls `then` whenever a context is registered: no hook may have seen it made (by a tool while
/// the driver started).
pub(crate) fn when_noticed(then: fn()) {
    NOTICED.set(then);
}

/// The calling thread's current context. `None` without one: the driver will say so itself.
#[inline]
pub(crate) fn here() -> Option<Here> {
    let handle = calls::current_context().ok()?;
    if handle.is_null() {
        return None;
    }
    last::get(epoch(), handle).or_else(|| look_up(handle, false))
}

/// The facts about a context, current or not.
pub(crate) fn of(handle: CUcontext) -> Option<Here> {
    if handle.is_null() {
        None
    } else {
        look_up(handle, true)
    }
}

/// The facts about a context that the driver has just made. Its handle may be that of one whose end
/// another thread is still noting: that is waited for.
pub(crate) fn made(handle: CUcontext) -> Option<Here> {
    let tracker = Tracker::get();
    let ends = |state: &State| {
        let known = state.contexts.get(&handle);
        known.is_some_and(|known| known.going > 0)
    };
    drop(tracker.wait(tracker.lock(), ends));
    of(handle)
}

#[cold]
fn look_up(asked: CUcontext, switch: bool) -> Option<Here> {
    let epoch = epoch();
    let here = match (known(asked), green::converted(asked)) {
        (Some(here), _) => here,
        (None, Some(green)) => in_primary(&green)?,
        (None, None) if switch => enter(asked, device_of(asked)?),
        (None, None) => match green::notice(asked) {
            Some(green) => in_primary(&green)?,
            None => enter(asked, current_device()?),
        },
    };
    last::set(epoch, asked, here);
    Some(here)
}

/// Whether a context of this number lives, or is being destroyed: what carries its number will be
/// looked for when it has ended.
pub(crate) fn is_alive(number: ContextId) -> bool {
    let state = Tracker::get().lock();
    let mut contexts = state.contexts.values();
    contexts.any(|known| known.here.context == number)
}

/// The facts about a context, if it is known.
pub(crate) fn known(handle: CUcontext) -> Option<Here> {
    let state = Tracker::get().lock();
    state.contexts.get(&handle).map(|known| known.here)
}

/// The primary context of a green one.
fn in_primary(green: &green::Green) -> Option<Here> {
    let device = || device::of_ordinal(green.ordinal);
    known(green.primary).or_else(|| Some(enter(green.primary, device()?)))
}

/// Gives a context a number, unless another thread did meanwhile.
fn enter(handle: CUcontext, device: DeviceKey) -> Here {
    let mut state = Tracker::get().lock();
    if let Some(known) = state.contexts.get(&handle) {
        return known.here;
    }
    let here = Here {
        device,
        context: state.free_number(),
        handle,
    };
    let noticed = Context {
        here,
        born: BORN.fetch_add(1, Ordering::Relaxed),
        going: 0,
        busy: 0,
        own: None,
        has_blocking: false,
    };
    state.contexts.insert(handle, noticed);
    let mut all = state.contexts.values();
    if all.any(|known| known.here.device != device) {
        SEVERAL.store(true, Ordering::Relaxed);
    }
    drop(state);
    if let Some(then) = NOTICED.get() {
        then();
    }
    here
}

impl State {
    /// A number that nothing carries, [`ContextId::NONE`] if there is none left.
    fn free_number(&self) -> ContextId {
        let is_free = |number: &u16| {
            let number = ContextId(*number);
            let mut living = self.contexts.values();
            living.all(|known| known.here.context != number) && !self.ended.contains(&number)
        };
        let free = (1..=ContextId::MAX).find(is_free);
        free.map_or(ContextId::NONE, ContextId)
    }
}

fn current_device() -> Option<DeviceKey> {
    device::of_ordinal(calls::current_device().ok()?)
}

/// The device of a context that need not be current.
fn device_of(handle: CUcontext) -> Option<DeviceKey> {
    let _current = CurrentContext::make(handle).ok()?;
    current_device()
}

/// The contexts of a device, and whether one of them is being destroyed, or perhaps only released.
pub(super) fn on(device_index: usize) -> Vec<(CUcontext, bool)> {
    let state = Tracker::get().lock();
    let here = state.contexts.iter();
    here.filter(|(_, known)| known.here.device.index() == device_index)
        .map(|(context, known)| (*context, known.going > 0))
        .collect()
}

/// The contexts of a device, those that are being destroyed among them.
pub(crate) fn alive_on(device_index: usize) -> Vec<Life> {
    let state = Tracker::get().lock();
    let here = state.contexts.iter();
    here.filter(|(_, known)| known.here.device.index() == device_index)
        .map(|(handle, known)| known.life(*handle))
        .collect()
}

/// The life of a context that is known.
pub(crate) fn life_of(handle: CUcontext) -> Option<Life> {
    let state = Tracker::get().lock();
    state.contexts.get(&handle).map(|known| known.life(handle))
}

impl Context {
    fn life(&self, handle: CUcontext) -> Life {
        let born = self.born;
        Life { handle, born }
    }
}

/// A context that is about to be destroyed, reset or released, perhaps for the last time. No mark
/// is put into it.
#[derive(Debug)]
#[must_use = "it has ended, or stays"]
pub(crate) struct Going {
    context: CUcontext,
    /// Which one it is, if it is known: others have called it by its handle.
    born: Option<u64>,
}

/// A context is about to be destroyed, reset or released. Returns after the last mark in it.
pub(crate) fn going(context: CUcontext) -> Going {
    let tracker = Tracker::get();
    let mut state = tracker.lock();
    let born = state.contexts.get_mut(&context).map(|known| {
        known.going += 1;
        known.born
    });
    let busy = |state: &State| {
        let context = state.contexts.get(&context);
        context.is_some_and(|context| context.busy > 0)
    };
    drop(tracker.wait(state, busy));
    Going { context, born }
}

/// The calls that may end a context, and that have not come back, never will.
pub(crate) fn nothing_ends(context: CUcontext) {
    if let Some(known) = Tracker::get().lock().contexts.get_mut(&context) {
        known.going = 0;
    }
}

impl Going {
    /// It is there still. Marks are put into it again once no other call may end it.
    pub(crate) fn stays(self) {
        let tracker = Tracker::get();
        let mut state = tracker.lock();
        let known = state.contexts.get_mut(&self.context);
        if let Some(known) = known.filter(|known| Some(known.born) == self.born) {
            known.going = known.going.saturating_sub(1);
        }
        drop(state);
        tracker.changed.notify_all();
    }

    /// The driver has destroyed or reset it: it goes with its streams and captures.
    pub(crate) fn ended(self) -> Ended {
        let tracker = Tracker::get();
        let mut state = tracker.lock();
        let known = state.contexts.remove(&self.context);
        let number = known.map_or(ContextId::NONE, |known| known.here.context);
        if number != ContextId::NONE {
            state.ended.push(number);
        }
        let State {
            streams, captures, ..
        } = &mut *state;
        streams.retain(|handle, stream| {
            let stays = stream.here.handle != self.context;
            if !stays {
                tracker.drop_captures(captures, |capture| capture.is_on(*handle));
            }
            stays
        });
        tracker.drop_captures(captures, |capture| capture.is_in(self.context));
        drop(state);
        tracker.changed.notify_all();
        next_epoch();
        green::primary_gone(self.context);
        Ended(number)
    }
}

/// A context that has ended. Its number is not reused as long as this lives: meanwhile its records
/// are credited.
#[derive(Debug)]
#[must_use = "what carries its number is to be credited"]
pub(crate) struct Ended(ContextId);

impl Ended {
    /// Its number, if it was known and had one.
    pub(crate) fn number(&self) -> Option<ContextId> {
        (self.0 != ContextId::NONE).then_some(self.0)
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let mut state = Tracker::get().lock();
        if let Some(at) = state.ended.iter().position(|number| *number == self.0) {
            state.ended.swap_remove(at);
        }
    }
}

/// A green context is gone: its handle may soon be another context's.
pub(crate) fn green_gone(gone: &green::Green) {
    green::gone(gone);
    next_epoch();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A context that is known, of a handle that no other test uses.
    fn known(at: usize) -> Here {
        let device = DeviceKey::of_index(3).expect("a device");
        enter(CUcontext(core::ptr::without_provenance_mut(at)), device)
    }

    fn is_going(here: Here) -> bool {
        on(3).contains(&(here.handle, true))
    }

    #[test]
    fn a_context_goes_until_the_last_call_that_may_end_it_is_back() {
        let here = known(0x3_1000);
        let (one, other) = (going(here.handle), going(here.handle));
        one.stays();
        assert!(is_going(here), "another thread may be destroying it");
        other.stays();
        assert!(!is_going(here));
    }

    #[test]
    fn a_late_call_says_nothing_about_the_next_context_of_the_handle() {
        let old = known(0x3_2000);
        let (one, late) = (going(old.handle), going(old.handle));
        drop(one.ended());
        let new = known(0x3_2000);
        let ends = going(new.handle);
        late.stays();
        assert!(is_going(new));
        ends.stays();
        assert!(!is_going(new));
    }

    #[test]
    fn a_number_lives_until_its_context_has_ended() {
        let here = known(0x3_4000);
        let (stays, ends) = (going(here.handle), going(here.handle));
        stays.stays();
        assert!(is_alive(here.context), "it may stay");
        let ended = ends.ended();
        assert!(!is_alive(here.context), "its records may be credited");
        drop(ended);
        assert!(!is_alive(here.context));
    }

    #[test]
    fn a_call_that_never_comes_back_can_be_forgotten() {
        let here = known(0x3_3000);
        let left = going(here.handle);
        nothing_ends(here.handle);
        assert!(!is_going(here));
        drop(left);
    }
}

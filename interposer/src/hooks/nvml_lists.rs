//! NVML's lists of processes, cut down to the container's own.
//!
//! The whole list is fetched into a buffer of ours first: the program's may be as small as the shorter list it was told of.
//!
//! # Safety
//! The program's buffer is written to as far as the program said it reaches.
#![allow(unsafe_code, reason = "writes the program's buffers")]

use core::ptr;

use gpushare_cuda_abi::nvml::*;

use crate::account::members::Members;

/// An entry of one of the lists.
pub(super) trait Entry: Copy {
    /// Whose entry it is.
    fn pid(&self) -> u32;
    /// The same entry under the pid that the program knows.
    fn under(self, pid: u32) -> Self;
}

macro_rules! entries {
    ($($name:ident)*) => {$(
        impl Entry for $name {
            fn pid(&self) -> u32 {
                self.pid
            }

            fn under(self, pid: u32) -> Self {
                Self { pid, ..self }
            }
        }
    )*};
}

entries! {
    nvmlProcessInfo_v1_t
    nvmlProcessInfo_v2_t
    nvmlProcessDetail_v1_t
    nvmlProcessUtilizationSample_t
    nvmlProcessUtilizationInfo_v1_t
}

/// Entries asked for at first.
const ROOM: usize = 128;
/// Times a list that has grown between two questions is asked for again.
const ATTEMPTS: usize = 4;

/// Answers a question for a list: `count` says how many entries `place` has room for, and gets how many there are.
///
/// `members` are the container's processes, `None` where the whole list stands. Arguments NVML will refuse go to it as they came.
///
/// # Safety
/// `count` and `place` are null or the program's for this call; `ask` may be called with either these or buffers of ours.
pub(super) unsafe fn answer<T: Entry>(
    count: *mut u32,
    place: *mut T,
    ask: impl Fn(*mut u32, *mut T) -> nvmlReturn_t,
    members: impl FnOnce() -> Option<Members>,
) -> nvmlReturn_t {
    let room = if count.is_null() {
        0
    } else {
        // SAFETY: not null, and then the program's.
        unsafe { *count }
    };
    if count.is_null() || (place.is_null() && room > 0) {
        return ask(count, place);
    }
    let Some(members) = members() else {
        return ask(count, place);
    };
    let list = match fetch(&ask) {
        Ok(list) => own(&members, list),
        Err(failed) => return failed,
    };
    let found = u32::try_from(list.len()).unwrap_or(u32::MAX);
    // SAFETY: not null, and the program's.
    unsafe { *count = found };
    if found > room {
        return nvmlReturn_t::INSUFFICIENT_SIZE;
    }
    if found > 0 {
        // SAFETY: the program's buffer has room for `room` entries, which is enough.
        unsafe { ptr::copy_nonoverlapping(list.as_ptr(), place, list.len()) };
    }
    nvmlReturn_t::SUCCESS
}

/// The container's own entries of a list, under the pids that the program knows.
pub(super) fn own<T: Entry>(members: &Members, list: Vec<T>) -> Vec<T> {
    let pids: Vec<u32> = list.iter().map(Entry::pid).collect();
    let shown = members.shown(&pids);
    let own = list.into_iter().zip(shown);
    own.filter_map(|(entry, pid)| Some(entry.under(pid?)))
        .collect()
}

/// The whole list.
pub(super) fn fetch<T: Entry>(
    ask: &impl Fn(*mut u32, *mut T) -> nvmlReturn_t,
) -> Result<Vec<T>, nvmlReturn_t> {
    let mut room = ROOM;
    for _ in 0..ATTEMPTS {
        let mut list = Vec::<T>::with_capacity(room);
        let mut count = u32::try_from(room).unwrap_or(u32::MAX);
        match ask(&raw mut count, list.as_mut_ptr()) {
            nvmlReturn_t::SUCCESS => {
                // SAFETY: NVML has written `count` entries, no more than there is room for.
                unsafe { list.set_len(room.min(count as usize)) };
                return Ok(list);
            }
            nvmlReturn_t::INSUFFICIENT_SIZE => room = room.max(count as usize) * 2,
            failed => return Err(failed),
        }
    }
    Err(nvmlReturn_t::INSUFFICIENT_SIZE)
}

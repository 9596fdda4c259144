//! NVML's lists of processes, cut down to the tenant's own.
//!
//! The whole list is fetched into a buffer of ours first, because the program's buffer may be as
//! small as the filtered list.

use gpushare_cuda_abi::nvml::*;

use crate::account::members::Members;
use crate::entry::args::Plain;
use crate::entry::lists::List;

/// An entry of one of the lists.
pub(super) trait Entry: Plain {
    /// The pid of the entry.
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

/// Answers a question for a list. `straight` is the program's call as it came, and `ask` NVML's
/// answer for a buffer of ours, and how many entries there are.
///
/// `members` are the tenant's processes, `None` where the whole list stands. Arguments NVML will
/// refuse go to it as they came.
pub(super) fn answer<T: Entry, L: Plain>(
    list: List<'_, T, L>,
    straight: impl FnOnce() -> nvmlReturn_t,
    ask: impl Fn(&mut [T]) -> (nvmlReturn_t, usize),
    members: impl FnOnce() -> Option<Members>,
) -> nvmlReturn_t {
    if list.is_wrong() {
        return straight();
    }
    let Some(members) = members() else {
        return straight();
    };
    match fetch(ask) {
        Ok(whole) => list.answer(&own(&members, whole)),
        Err(failed) => failed,
    }
}

/// The tenant's own entries of a list, under the pids that the program knows.
pub(super) fn own<T: Entry>(members: &Members, list: Vec<T>) -> Vec<T> {
    let pids: Vec<u32> = list.iter().map(Entry::pid).collect();
    let shown = members.shown(&pids);
    let own = list.into_iter().zip(shown);
    own.filter_map(|(entry, pid)| Some(entry.under(pid?)))
        .collect()
}

/// The whole list.
pub(super) fn fetch<T: Entry>(
    ask: impl Fn(&mut [T]) -> (nvmlReturn_t, usize),
) -> Result<Vec<T>, nvmlReturn_t> {
    let mut room = ROOM;
    for _ in 0..ATTEMPTS {
        let mut list = vec![T::zeroed(); room];
        match ask(&mut list) {
            (nvmlReturn_t::SUCCESS, count) => {
                list.truncate(count);
                return Ok(list);
            }
            (nvmlReturn_t::INSUFFICIENT_SIZE, count) => room = room.max(count) * 2,
            (failed, _) => return Err(failed),
        }
    }
    Err(nvmlReturn_t::INSUFFICIENT_SIZE)
}

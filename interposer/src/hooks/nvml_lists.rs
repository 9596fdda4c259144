//! NVML's lists of processes and their sessions, cut down to the tenant's own.
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
    nvmlEncoderSessionInfo_t
    nvmlFBCSessionInfo_t
}

/// A pid alone.
impl Entry for u32 {
    fn pid(&self) -> u32 {
        *self
    }

    fn under(self, pid: u32) -> Self {
        pid
    }
}

/// Entries asked for at first.
const ROOM: usize = 128;
/// Times a list that has grown between two questions is asked for again.
const ATTEMPTS: usize = 4;

/// What a list is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// Running processes. There may be none.
    Running,
    /// Samples of processes. Without any, NVML answers `NOT_FOUND`. Asked how much room is needed,
    /// it says the size of its buffer, so that a sample more before the next call is no error.
    Samples,
    /// Sessions of the encoder or of frame capture. A count of 0 is the question how many there
    /// are, which succeeds (`nvml.h`).
    Sessions,
}

/// Answers a question for a list. `straight` is the program's call as it came, and `ask` NVML's
/// answer for a buffer of ours, and how many entries there are.
///
/// `members` are the tenant's processes, `None` where the whole list stands. Arguments NVML will
/// refuse go to it as they came.
pub(super) fn answer<T: Entry, L: Plain>(
    (list, of): (List<'_, T, L>, Of),
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
    let whole = match fetch(ask) {
        Ok(whole) => whole,
        Err(failed) => return failed,
    };
    let all = whole.len();
    told(list, of, all, &own(&members, whole))
}

/// Answers with the tenant's own entries of so many.
fn told<T: Entry, L: Plain>(list: List<'_, T, L>, of: Of, all: usize, own: &[T]) -> nvmlReturn_t {
    match of {
        Of::Samples if own.is_empty() => nvmlReturn_t::NOT_FOUND,
        Of::Samples if list.is_question() => list.needs(all),
        Of::Sessions if !list.has_room() => list.counts(own.len()),
        Of::Samples | Of::Running | Of::Sessions => list.answer(own),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::args::InOut;
    use crate::entry::lists::Room;

    fn sample(pid: u32) -> nvmlProcessUtilizationSample_t {
        let mut sample = nvmlProcessUtilizationSample_t::zeroed();
        sample.pid = pid;
        sample
    }

    /// The answer for these own ones of three, and the count behind it.
    fn answer(
        of: Of,
        own: &[nvmlProcessUtilizationSample_t],
        place: &mut [nvmlProcessUtilizationSample_t],
    ) -> (nvmlReturn_t, u32) {
        let mut count = u32::try_from(place.len()).unwrap();
        let room = if place.is_empty() {
            Room::none()
        } else {
            Room::of(place)
        };
        let list = List::of(InOut::to(&mut count), room);
        let answer = told(list, of, 3, own);
        (answer, count)
    }

    #[test]
    fn none_of_the_tenants_samples_are_none() {
        let mut place = [sample(0); 2];
        let none = nvmlReturn_t::NOT_FOUND;
        assert_eq!(answer(Of::Samples, &[], &mut place), (none, 2));
        assert_eq!(answer(Of::Samples, &[], &mut []), (none, 0));
        let fine = nvmlReturn_t::SUCCESS;
        assert_eq!(answer(Of::Running, &[], &mut place), (fine, 0));
        assert_eq!(answer(Of::Running, &[], &mut []), (fine, 0));
    }

    #[test]
    fn the_room_for_samples_is_that_of_all_of_them() {
        let (own, short) = ([sample(7)], nvmlReturn_t::INSUFFICIENT_SIZE);
        assert_eq!(answer(Of::Samples, &own, &mut []), (short, 3));
        assert_eq!(answer(Of::Running, &own, &mut []), (short, 1));
        assert_eq!(
            answer(Of::Sessions, &own, &mut []),
            (nvmlReturn_t::SUCCESS, 1)
        );
        let two = [sample(7), sample(8)];
        let mut one = [sample(0)];
        assert_eq!(answer(Of::Sessions, &two, &mut one), (short, 2));
        let mut place = [sample(0); 3];
        let fine = nvmlReturn_t::SUCCESS;
        assert_eq!(answer(Of::Samples, &own, &mut place), (fine, 1));
        assert_eq!(place.map(|entry| entry.pid), [7, 0, 0]);
    }
}

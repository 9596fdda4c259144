//! Lists that a program hands over: arrays with a count, and NVML's lists with room for entries.
//!
//! # Safety
//! As in [`args`](super::args), a value is an argument that the program passed to an exported
//! function, or was made of a reference of ours. The C contract of an array is that it holds as
//! many entries as its count says ([`Count`] is the program's number, which no code here can
//! invent). The contract of a list is that it has room for as many entries as its count initially
//! says.
#![allow(
    unsafe_code,
    reason = "reads and writes the program's arrays as far as it said they reach"
)]

use core::ffi::{c_uint, c_void};
use core::marker::PhantomData;
use core::{fmt, ptr};

use gpushare_cuda_abi::cuda::{CUevent, CUlaunchAttributeID, CUlaunchConfig};
use gpushare_cuda_abi::nvml::*;

use super::args::{AttributeOut, In, InOut, Passed, Plain};
use crate::driver::nvml::Wide;

/// How many entries the program says an array has.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Count<N>(N);

/// A C type that counts entries.
pub(crate) trait Number: Copy {
    fn number(self) -> usize;
}

impl Number for c_uint {
    fn number(self) -> usize {
        self as usize
    }
}

impl Number for usize {
    fn number(self) -> usize {
        self
    }
}

impl<N: Number> Count<N> {
    /// The number.
    pub(crate) fn get(self) -> usize {
        self.0.number()
    }
}

/// An array the program has for the driver to read, or null.
#[repr(transparent)]
pub(crate) struct InSlice<'a, T>(*const T, PhantomData<&'a [T]>);

impl<T> Clone for InSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for InSlice<'_, T> {}

impl<T> fmt::Debug for InSlice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&self.0, f)
    }
}

/// An array of places for attributes of a pointer, or null.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct AttributeOuts<'a>(*mut *mut c_void, PhantomData<&'a [AttributeOut<'a>]>);

impl fmt::Debug for AttributeOuts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&self.0, f)
    }
}

impl<'a> AttributeOuts<'a> {
    /// The places; none where the program gave no array.
    pub(crate) fn entries(self, count: Count<c_uint>) -> impl Iterator<Item = AttributeOut<'a>> {
        let list = InSlice::<*mut c_void>(self.0, PhantomData);
        list.entries(count).map(AttributeOut::entry)
    }
}

impl<'a, T: Plain> InSlice<'a, T> {
    /// An array of ours in place of the program's.
    pub(crate) fn of(entries: &'a [T]) -> Self {
        Self(entries.as_ptr(), PhantomData)
    }

    /// The entries, each copied when it is reached; none where the program gave no array. `count`
    /// is the argument of the same call that counts them.
    pub(crate) fn entries<N: Number>(self, count: Count<N>) -> impl Iterator<Item = T> {
        let count = if self.0.is_null() { 0 } else { count.get() };
        (0..count).map(move |at| {
            // SAFETY: below the count that the program gave with the array, which is not null, so
            // an entry is there until the call ends. As bytes, which need no alignment.
            unsafe { self.0.add(at).read_unaligned() }
        })
    }
}

/// The events that a launch records by its attributes: when its blocks have begun or ended, or
/// where the kernel says so.
pub(crate) fn recorded_by(config: In<'_, CUlaunchConfig>) -> impl Iterator<Item = CUevent> {
    let (attributes, count) = config
        .read()
        .filter(|config| !config.attrs.is_null())
        .map_or((ptr::null(), 0), |config| {
            (config.attrs.cast_const(), config.numAttrs as usize)
        });
    (0..count).filter_map(move |at| {
        // SAFETY: below the count that the program gave with the array, which is not null, so an
        // entry is there until the call ends. As bytes, which need no alignment.
        let attribute = unsafe { attributes.add(at).read_unaligned() };
        match attribute.id {
            // SAFETY: the value that the attribute has by its number; any bits are an event.
            CUlaunchAttributeID::PROGRAMMATIC_EVENT => unsafe {
                Some(attribute.value.programmaticEvent.event)
            },
            // SAFETY: as above.
            CUlaunchAttributeID::LAUNCH_COMPLETION_EVENT => unsafe {
                Some(attribute.value.launchCompletionEvent.event)
            },
            _ => None,
        }
    })
}

// Passed on together, as they came together.
impl<N> Passed for Count<N> {}
impl<T> Passed for InSlice<'_, T> {}
impl Passed for AttributeOuts<'_> {}

/// Room that the program has for a list's entries, or null.
#[repr(transparent)]
pub(crate) struct Room<'a, T>(*mut T, PhantomData<&'a mut [T]>);

impl<T> Clone for Room<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Room<'_, T> {}

impl<T> fmt::Debug for Room<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&self.0, f)
    }
}

impl<T> Passed for Room<'_, T> {}

impl<'a, T: Plain> Room<'a, T> {
    pub(crate) fn of(entries: &'a mut [T]) -> Self {
        Self(entries.as_mut_ptr(), PhantomData)
    }

    /// No place.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self(ptr::null_mut(), PhantomData)
    }
}

impl<'a> Room<'a, nvmlProcessInfo_v2_t> {
    /// The same where the driver's entries are wider than the type of the argument says. A program
    /// has room for those.
    pub(crate) fn widened(self, _: Wide) -> Room<'a, nvmlProcessDetail_v1_t> {
        Room(self.0.cast(), PhantomData)
    }
}

impl<'a> Room<'a, nvmlProcessDetail_v1_t> {
    /// The argument that it was.
    pub(crate) fn argument(self, _: Wide) -> Room<'a, nvmlProcessInfo_v2_t> {
        Room(self.0.cast(), PhantomData)
    }
}

/// Asks for a list: how much room there is, the answer, and how many entries there are.
pub(crate) fn filled<T: Plain>(
    entries: &mut [T],
    ask: impl FnOnce(InOut<'_, u32>, Room<'_, T>) -> nvmlReturn_t,
) -> (nvmlReturn_t, usize) {
    let mut count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
    let answer = ask(InOut::to(&mut count), Room::of(entries));
    (answer, count as usize)
}

/// A structure of NVML's that has a list among its members.
///
/// # Safety
/// `entries` has room for as many entries as `count` says in every structure of [`VERSION`] that a
/// program hands to NVML.
///
/// [`VERSION`]: Listing::VERSION
pub(crate) unsafe trait Listing: Plain {
    /// The type of an entry.
    type Entry: Plain;
    /// The version whose entries these are.
    const VERSION: u32 = struct_version::<Self>(1);
    /// The version that the program says it is of.
    fn version(&self) -> u32;
    /// One of another version, and else of zeros.
    fn of_version(version: u32) -> Self;
    /// The members.
    fn list(&mut self) -> (&mut u32, &mut *mut Self::Entry);
}

// SAFETY: nvml.h says so of these members.
unsafe impl Listing for nvmlProcessDetailList_t {
    type Entry = nvmlProcessDetail_v1_t;

    fn version(&self) -> u32 {
        self.version
    }

    fn of_version(version: u32) -> Self {
        Self {
            version,
            ..Self::zeroed()
        }
    }

    fn list(&mut self) -> (&mut u32, &mut *mut Self::Entry) {
        (&mut self.numProcArrayEntries, &mut self.procArray)
    }
}

// SAFETY: nvml.h says so of these members.
unsafe impl Listing for nvmlProcessesUtilizationInfo_t {
    type Entry = nvmlProcessUtilizationInfo_v1_t;

    fn version(&self) -> u32 {
        self.version
    }

    fn of_version(version: u32) -> Self {
        Self {
            version,
            ..Self::zeroed()
        }
    }

    fn list(&mut self) -> (&mut u32, &mut *mut Self::Entry) {
        (&mut self.processSamplesCount, &mut self.procUtilArray)
    }
}

/// [`filled`] for a structure: `given`, the program's, with our room for entries in it. One of
/// another version, whose entries may be longer than ours, is refused.
pub(crate) fn filled_within<L: Listing>(
    given: L,
    entries: &mut [L::Entry],
    ask: impl FnOnce(InOut<'_, L>) -> nvmlReturn_t,
) -> (nvmlReturn_t, usize) {
    let mut asked = given;
    if asked.version() != L::VERSION {
        return (refused::<L>(given.version(), ask), 0);
    }
    let (count, place) = asked.list();
    *count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
    *place = entries.as_mut_ptr();
    let answer = ask(InOut::to(&mut asked));
    (answer, *asked.list().0 as usize)
}

/// Structures that are long enough together for one of a newer version.
const NEWER: usize = 64;

/// The answer to a structure of a version that is not known here: NVML's own, where it refuses it,
/// too. It is asked with zeros, so it finds no place for entries.
#[cold]
fn refused<L: Listing>(
    version: u32,
    ask: impl FnOnce(InOut<'_, L>) -> nvmlReturn_t,
) -> nvmlReturn_t {
    let mut zeros = vec![L::zeroed(); NEWER];
    let bytes = version & 0xff_ffff;
    if bytes as usize > size_of_val(&*zeros) {
        return nvmlReturn_t::ARGUMENT_VERSION_MISMATCH;
    }
    if let Some(first) = zeros.first_mut() {
        *first = L::of_version(version);
    }
    match ask(InOut::first_of(&mut zeros)) {
        nvmlReturn_t::SUCCESS | nvmlReturn_t::INSUFFICIENT_SIZE | nvmlReturn_t::NOT_FOUND => {
            nvmlReturn_t::ARGUMENT_VERSION_MISMATCH
        }
        wrong => wrong,
    }
}

/// A list that the program asks NVML for.
#[derive(Debug)]
pub(crate) struct List<'a, T, L = u32> {
    /// Where the count is: the number itself, or the structure that it is a member of.
    whole: InOut<'a, L>,
    /// The count when the call came.
    given: Option<L>,
    /// That with another count.
    counted: fn(L, u32) -> L,
    room: u32,
    entries: *mut T,
}

impl<'a, T: Plain> List<'a, T> {
    /// Of the two arguments of a function; `count` belongs to `room`.
    pub(crate) fn of(count: InOut<'a, u32>, room: Room<'a, T>) -> Self {
        let given = count.read();
        Self {
            whole: count,
            given,
            counted: |_, found| found,
            room: given.unwrap_or(0),
            entries: room.0,
        }
    }
}

impl<'a, L: Listing> List<'a, L::Entry, L> {
    /// Of a structure.
    pub(crate) fn within(whole: InOut<'a, L>) -> Self {
        let mut given = whole.read();
        let (room, entries) = match given.as_mut().map(L::list) {
            Some((count, entries)) => (*count, *entries),
            None => (0, ptr::null_mut()),
        };
        Self {
            whole,
            given,
            counted: |mut given, found| {
                *given.list().0 = found;
                given
            },
            room,
            entries,
        }
    }

    /// The program's structure, if it gave one.
    pub(crate) fn given(&self) -> Option<L> {
        self.given
    }
}

impl<T: Plain, L: Plain> List<'_, T, L> {
    /// Whether NVML will refuse it: there is no count, or no place where there is said to be room.
    pub(crate) fn is_wrong(&self) -> bool {
        self.given.is_none() || self.entries.is_null() && self.room > 0
    }

    /// Whether the program asks for no more than how much room it needs.
    pub(crate) fn is_question(&self) -> bool {
        self.entries.is_null()
    }

    /// Answers such a question.
    pub(crate) fn needs(self, room: usize) -> nvmlReturn_t {
        let Some(given) = self.given else {
            return nvmlReturn_t::INVALID_ARGUMENT;
        };
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        self.whole.write((self.counted)(given, room));
        nvmlReturn_t::INSUFFICIENT_SIZE
    }

    /// Whether the program says that there is room for an entry.
    pub(crate) fn has_room(&self) -> bool {
        self.room > 0
    }

    /// Answers the question how many entries there are.
    pub(crate) fn counts(self, found: usize) -> nvmlReturn_t {
        match self.needs(found) {
            nvmlReturn_t::INSUFFICIENT_SIZE => nvmlReturn_t::SUCCESS,
            failed => failed,
        }
    }

    /// Writes how many entries there are, and these if there is room for all of them.
    pub(crate) fn answer(self, own: &[T]) -> nvmlReturn_t {
        let Some(given) = self.given else {
            return nvmlReturn_t::INVALID_ARGUMENT;
        };
        let found = u32::try_from(own.len()).unwrap_or(u32::MAX);
        self.whole.write((self.counted)(given, found));
        if found > self.room {
            return nvmlReturn_t::INSUFFICIENT_SIZE;
        }
        if found > 0 && !self.entries.is_null() {
            // SAFETY: the program's count said, before it was written to, that there is room for
            // at least as many entries, at a place that is not null. The place is the program's,
            // and so not in `own`. As bytes, which need no alignment.
            unsafe {
                ptr::copy_nonoverlapping(
                    own.as_ptr().cast::<u8>(),
                    self.entries.cast::<u8>(),
                    size_of_val(own),
                );
            }
        }
        nvmlReturn_t::SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_written_as_far_as_there_is_room_for_all_of_it() {
        let mut place = [0_u32; 3];
        let mut count = 2;
        let list = List::of(InOut::to(&mut count), Room::of(&mut place));
        assert!(!list.is_wrong());
        assert_eq!(
            list.answer(&[7, 8, 9]),
            nvmlReturn_t::INSUFFICIENT_SIZE,
            "there is room for two"
        );
        assert_eq!((count, place), (3, [0; 3]));
        let list = List::of(InOut::to(&mut count), Room::of(&mut place));
        assert_eq!(list.answer(&[7, 8]), nvmlReturn_t::SUCCESS);
        assert_eq!((count, place), (2, [7, 8, 0]));
    }

    #[test]
    fn a_list_in_a_structure_changes_only_its_count() {
        let mut entries = [nvmlProcessDetail_v1_t::zeroed(); 2];
        let mut whole = nvmlProcessDetailList_t::zeroed();
        (whole.version, whole.mode) = (1, 2);
        (whole.numProcArrayEntries, whole.procArray) = (2, entries.as_mut_ptr());
        let mut own = nvmlProcessDetail_v1_t::zeroed();
        own.pid = 77;
        let list = List::within(InOut::to(&mut whole));
        assert_eq!(list.answer(&[own]), nvmlReturn_t::SUCCESS);
        assert_eq!((whole.version, whole.mode), (1, 2));
        assert_eq!(whole.numProcArrayEntries, 1);
        assert_eq!(entries.map(|entry| entry.pid), [77, 0]);
    }

    /// The answer to a version, of an NVML that says so, and how often it was asked.
    fn of_a_version(version: u32, says: nvmlReturn_t) -> (nvmlReturn_t, u32) {
        let mut asked = 0;
        let given = nvmlProcessDetailList_t::of_version(version);
        let (answer, count) = filled_within(given, &mut [], |list| {
            let list = list.read().expect("a structure");
            assert_eq!((list.version, list.procArray), (version, ptr::null_mut()));
            asked += 1;
            says
        });
        assert_eq!(count, 0);
        (answer, asked)
    }

    #[test]
    fn a_version_that_nvml_refuses_has_its_own_answer() {
        let invalid = nvmlReturn_t::INVALID_ARGUMENT;
        assert_eq!(of_a_version(0, invalid), (invalid, 1));
        assert_eq!(of_a_version(2 << 24 | 64, invalid), (invalid, 1));
    }

    #[test]
    fn a_version_that_nvml_alone_knows_is_refused() {
        let refused = nvmlReturn_t::ARGUMENT_VERSION_MISMATCH;
        for says in [nvmlReturn_t::SUCCESS, nvmlReturn_t::INSUFFICIENT_SIZE] {
            assert_eq!(of_a_version(2 << 24 | 64, says), (refused, 1));
        }
        let fine = nvmlReturn_t::SUCCESS;
        assert_eq!(
            of_a_version(2 << 24 | 0xff_ffff, fine),
            (refused, 0),
            "too long"
        );
    }

    #[test]
    fn no_place_is_right_only_where_no_room_is_claimed() {
        let list = |count: &mut u32| List::<'_, u32>::of(InOut::to(count), Room::none()).is_wrong();
        assert!(!list(&mut 0));
        assert!(list(&mut 1));
    }

    #[test]
    fn an_array_has_as_many_entries_as_its_count_says() {
        let numbers = [1_u32, 2, 3];
        let slice = InSlice(numbers.as_ptr(), PhantomData);
        assert_eq!(slice.entries(Count(2_u32)).collect::<Vec<_>>(), [1, 2]);
        let none = InSlice::<'_, u32>(ptr::null(), PhantomData);
        assert_eq!(none.entries(Count(9_u32)).count(), 0);
    }
}

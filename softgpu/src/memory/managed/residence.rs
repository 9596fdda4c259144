//! Where the pages of an allocation are, and how they move.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::Arc;

use gpushare_cuda_abi::cuda::CUresult;

use super::advice::Location;
use super::{Managed, Manner, device, find};
use crate::Result;
use crate::exec::nanoseconds;
use crate::spec::{HomeMemory, PAGE, Spec};
use crate::world::{Device, Resident};

/// Pages taken from the device at a time.
const AT_ONCE: usize = 16;

/// The copies of one page. Without any it was never touched.
#[derive(Debug, Clone, Default)]
pub(super) struct Page {
    on_host: bool,
    /// By device, the page it takes there. More than one copy exists only of a page that is mostly
    /// read.
    on: Vec<(u32, Resident)>,
    /// By device, the memory it has left, which stays taken there until other memory needs it.
    kept: Vec<(u32, Resident)>,
}

impl Page {
    fn is_nowhere(&self) -> bool {
        !self.on_host && self.on.is_empty()
    }

    /// A place that has it; `None` where it was never touched.
    fn place(&self) -> Option<Location> {
        let host = self.on_host.then_some(Location::Host);
        let device = self.on.first().map(|(at, _)| Location::Device(*at));
        device.or(host)
    }

    fn is_on(&self, ordinal: u32) -> bool {
        self.on.iter().any(|(at, _)| *at == ordinal)
    }
}

/// Bytes that an operation has moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// To the device.
    pub to_device: u64,
    /// To the host.
    pub to_host: u64,
    /// Accessed on the host, by the device.
    pub remote: u64,
    /// Pages that came because they were touched.
    pub faults: u64,
}

impl Moved {
    /// The time this takes on a machine described by `spec`, one transfer after the other (ns).
    pub fn ns(&self, spec: &Spec) -> u64 {
        let bytes = self.to_device + self.to_host + self.remote;
        nanoseconds(bytes, spec.link).saturating_add(self.faults.saturating_mul(spec.fault))
    }
}

impl AddAssign for Moved {
    fn add_assign(&mut self, other: Self) {
        self.to_device += other.to_device;
        self.to_host += other.to_host;
        self.remote += other.remote;
        self.faults += other.faults;
    }
}

impl Managed {
    /// An operation of `device` accesses `len` bytes from `offset`: pages come, as far as the
    /// device has memory for them, or are accessed where they are.
    pub(super) fn bring(
        &self,
        device: &Arc<Device>,
        offset: u64,
        len: u64,
        manner: Manner,
    ) -> Moved {
        let mut moved = Moved::default();
        if self.fixed.is_some() {
            return moved;
        }
        let range = self.pages_of(offset, len);
        let ordinal = device.ordinal();
        let mut pages = self.pages();
        refresh(&mut pages[range.clone()]);
        let absent: Vec<usize> = range
            .clone()
            .filter(|at| !pages[*at].is_on(ordinal))
            .collect();
        let mut coming = Vec::with_capacity(absent.len());
        for at in absent {
            let stays = match manner {
                Manner::CopyFrom => !pages[at].is_nowhere(),
                Manner::Prefetch => false,
                Manner::Read | Manner::Write => {
                    self.advice()[at].preferred() == Some(Location::Host)
                }
            };
            if !stays {
                coming.push(at);
            } else if pages[at].on.is_empty() {
                pages[at].on_host = true;
                moved.remote += PAGE;
            }
        }
        moved += self.take_again(device, &mut pages, &mut coming, manner);
        for some in coming.chunks(AT_ONCE) {
            moved += self.take(device, &mut pages, some, manner);
        }
        if manner == Manner::Write {
            let range = &mut pages[range];
            range.iter_mut().for_each(|page| alone(page, ordinal));
        }
        moved
    }

    /// Takes device memory for some pages, or for each alone where it is short.
    fn take(&self, device: &Arc<Device>, pages: &mut [Page], some: &[usize], by: Manner) -> Moved {
        let mut moved = Moved::default();
        let Ok((taken, evicted)) = device.take_managed(some.len() as u64) else {
            if let [at] = some {
                pages[*at].on_host |= pages[*at].on.is_empty();
                moved.remote += PAGE;
            } else {
                for at in some {
                    moved += self.take(device, pages, &[*at], by);
                }
            }
            return moved;
        };
        moved.to_host += evicted * PAGE;
        for (at, resident) in some.iter().zip(taken) {
            moved += self.has_come(&mut pages[*at], *at, (device.ordinal(), resident), by);
        }
        moved
    }

    /// Brings those of some pages whose memory is still kept on the device, and leaves the others.
    fn take_again(
        &self,
        device: &Arc<Device>,
        pages: &mut [Page],
        coming: &mut Vec<usize>,
        by: Manner,
    ) -> Moved {
        let mut moved = Moved::default();
        let ordinal = device.ordinal();
        let of = |at: &usize| {
            let kept = pages[*at].kept.iter().find(|(on, _)| *on == ordinal);
            kept.map(|(_, resident)| (*at, *resident))
        };
        let kept: Vec<(usize, Resident)> = coming.iter().filter_map(of).collect();
        if kept.is_empty() {
            return moved;
        }
        let residents: Vec<Resident> = kept.iter().map(|(_, resident)| *resident).collect();
        let Ok(again) = device.use_managed_again(&residents) else {
            return moved;
        };
        for ((at, _), again) in kept.into_iter().zip(again) {
            let page = &mut pages[at];
            page.kept.retain(|(on, _)| *on != ordinal);
            if let Some(resident) = again {
                moved += self.has_come(page, at, (ordinal, resident), by);
            }
        }
        coming.retain(|at| !pages[*at].is_on(ordinal));
        moved
    }

    /// A page is on a device now.
    fn has_come(&self, page: &mut Page, at: usize, to: (u32, Resident), by: Manner) -> Moved {
        let moved = Moved {
            to_device: if page.is_nowhere() { 0 } else { PAGE },
            faults: u64::from(by != Manner::Prefetch),
            ..Moved::default()
        };
        page.kept.retain(|(on, _)| *on != to.0);
        page.on.push(to);
        if !self.advice()[at].is_read_mostly() {
            alone(page, to.0);
        }
        moved
    }

    /// Moves pages to the host.
    pub(super) fn send_home(&self, offset: u64, len: u64) -> Moved {
        let mut moved = Moved::default();
        if self.fixed.is_some() {
            return moved;
        }
        let range = self.pages_of(offset, len);
        let mut pages = self.pages();
        refresh(&mut pages[range.clone()]);
        let mut left = Vec::new();
        for at in range {
            let page = &mut pages[at];
            if !page.on.is_empty() && !page.on_host {
                moved.to_host += PAGE;
            }
            page.on_host = true;
            if !self.advice()[at].is_read_mostly() {
                let copies = std::mem::take(&mut page.on);
                match self.home {
                    HomeMemory::Kept => page.kept.extend(&copies),
                    HomeMemory::Freed => (),
                }
                left.extend(copies);
            }
        }
        match self.home {
            HomeMemory::Kept => on_each(left, Device::keep_managed),
            HomeMemory::Freed => on_each(left, Device::give_managed),
        }
        moved
    }

    /// Gives all device memory back.
    pub(super) fn give_all(&self) {
        let all = self
            .pages()
            .iter_mut()
            .flat_map(|page| {
                let mut all = std::mem::take(&mut page.on);
                all.append(&mut page.kept);
                all
            })
            .collect();
        give(all);
    }
}

/// Keeps only the copy on one device, if there is one.
fn alone(page: &mut Page, ordinal: u32) {
    if page.is_on(ordinal) {
        let all = std::mem::take(&mut page.on);
        let (here, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(at, _)| *at == ordinal);
        page.on = here;
        page.on_host = false;
        give(others);
    }
}

/// The place of most pages in each part of `summary` bytes of a range, by looking each `sampling`
/// bytes (0: at each page). The first of two where they are as many; `None` for a part that was
/// never touched.
///
/// # Errors
/// `INVALID_VALUE` for a range that is not managed memory, a part of 0 bytes or longer than the
/// range, or steps longer than a part; `NOT_SUPPORTED` where the memory cannot move.
pub fn places(
    address: u64,
    len: u64,
    summary: u64,
    sampling: u64,
) -> Result<Vec<Option<Location>>> {
    if summary == 0 || summary > len || sampling > summary {
        return Err(CUresult::INVALID_VALUE);
    }
    let (base, managed) = find(address, len)?;
    if managed.fixed.is_some() {
        return Err(CUresult::NOT_SUPPORTED);
    }
    let step = if sampling == 0 { PAGE } else { sampling };
    let mut pages = managed.pages();
    refresh(&mut pages);
    let part = |start: u64| {
        let end = start.saturating_add(summary).min(len);
        let mut counts: Vec<(Option<Location>, u64)> = Vec::new();
        let mut at = start;
        while at < end {
            let page = managed.pages_of(address - base + at, 1).start;
            let place = pages.get(page).and_then(Page::place);
            match counts.iter_mut().find(|(known, _)| *known == place) {
                Some((_, count)) => *count += 1,
                None => counts.push((place, 1)),
            }
            at += step;
        }
        let most = counts.iter().rev().max_by_key(|(_, count)| *count);
        most.and_then(|(place, _)| *place)
    };
    let parts = len.div_ceil(summary);
    Ok((0..parts).map(|number| part(number * summary)).collect())
}

/// Notes which copies were evicted: their pages are on the host.
fn refresh(pages: &mut [Page]) {
    for (ordinal, places) in by_device(pages) {
        let Some(device) = device(ordinal) else {
            continue;
        };
        let residents: Vec<Resident> = places.iter().map(|(_, resident)| *resident).collect();
        let Ok(here) = device.has(&residents) else {
            continue;
        };
        for ((at, resident), _) in places.iter().zip(here).filter(|(_, here)| !here) {
            pages[*at].on.retain(|copy| *copy != (ordinal, *resident));
            pages[*at].on_host = true;
        }
    }
}

type Copies = Vec<(usize, Resident)>;

fn by_device(pages: &[Page]) -> BTreeMap<u32, Copies> {
    let mut found: BTreeMap<u32, Copies> = BTreeMap::new();
    for (at, page) in pages.iter().enumerate() {
        for (ordinal, resident) in &page.on {
            found.entry(*ordinal).or_default().push((at, *resident));
        }
    }
    found
}

/// Gives copies back to their devices.
fn give(copies: Vec<(u32, Resident)>) {
    on_each(copies, Device::give_managed);
}

/// Does something with the copies of each device.
fn on_each(copies: Vec<(u32, Resident)>, act: impl Fn(&Device, &[Resident])) {
    let page = Page {
        on: copies,
        ..Page::default()
    };
    for (ordinal, places) in by_device(&[page]) {
        if let Some(device) = device(ordinal) {
            let residents: Vec<Resident> = places.iter().map(|(_, resident)| *resident).collect();
            act(&device, &residents);
        }
    }
}

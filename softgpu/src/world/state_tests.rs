//! Random histories of a machine, checked against sums recomputed from its pages.

use std::alloc::{Layout, alloc_zeroed};

use super::super::layout::DeviceState;
use super::super::resident::Resident;
use super::*;

/// The compared values of a device: pages taken and late, bytes requested, pages by slot and kind,
/// and those that are kept.
type Sums = Vec<(u64, u64, u64, Vec<u64>)>;

/// All processes live, except the slots in the list.
struct Dead(Vec<usize>);

impl Facts for Dead {
    fn process_lives(&self, slot: usize) -> bool {
        !self.0.contains(&slot)
    }
    fn share_lives(&self, share: u64) -> bool {
        share.is_multiple_of(2)
    }
}

#[allow(unsafe_code, reason = "the header is too large for the stack")]
fn header() -> Box<Header> {
    let layout = Layout::new::<Header>();
    // SAFETY: zeroes are a valid header (integers and an unused mutex), allocated with the layout
    // of a box.
    unsafe { Box::from_raw(alloc_zeroed(layout).cast()) }
}

/// Devices of so many pages each, which evict and keep nothing that was freed.
fn view<'a>((header, pages): (&'a mut Header, &'a mut [Page]), per_device: usize) -> View<'a> {
    View {
        header,
        pages,
        per_device,
        seed: 1,
        linger: 0,
        evicts: true,
        erase: Vec::new(),
    }
}

/// Every sum as it is kept, then as a repair computes it.
fn sums(view: &mut View<'_>) -> [Sums; 2] {
    let read = |view: &View<'_>| {
        let devices = view.header.devices[..2].iter().enumerate();
        let of = |(index, device): (usize, &DeviceState)| {
            let pages = view.header.slots[..8].iter().flat_map(|slot| {
                slot.uses[index]
                    .pages
                    .into_iter()
                    .chain([slot.uses[index].kept])
            });
            (
                device.taken,
                device.late,
                device.requested_now,
                pages.collect(),
            )
        };
        devices.map(of).collect()
    };
    let (shares, dead) = (view.header.shares, view.header.dead);
    let found: Vec<_> = view.header.slots.iter().map(|slot| slot.dead).collect();
    let before = read(view);
    view.repair();
    (view.header.shares, view.header.dead) = (shares, dead);
    for (slot, dead) in view.header.slots.iter_mut().zip(found) {
        slot.dead = dead;
    }
    [before, read(view)]
}

#[test]
fn after_any_operation_the_sums_equal_the_sums_of_the_pages() {
    let mut header = header();
    let mut pages = vec![Page::default(); 2 * 64];
    let mut view = view((&mut header, &mut pages), 64);
    view.seed = 5;
    let (mut random, mut dead) = (1, Dead(Vec::new()));
    let mut held: Vec<(usize, usize, Vec<PageRun>)> = Vec::new();
    for step in 0..4000 {
        random = mix(random);
        let (slot, device) = ((random % 6) as usize, (random >> 8) as usize % 2);
        let lives = view.header.slots[slot].number != 0 && view.header.slots[slot].dead == 0;
        match random >> 16 & 7 {
            _ if !lives => {
                dead.0
                    .retain(|gone| *gone != slot || view.header.slots[slot].number != 0);
                let entered = view.enter(7, false, |free| free == slot);
                assert!(entered.is_none_or(|at| at == slot && !dead.0.contains(&at)));
            }
            0..=2 => {
                let count = random >> 24 & 15;
                let managed = Kind::Managed as u8;
                let pages = view.pages[device * view.per_device..][..view.per_device].iter();
                let evictable = pages.filter(|page| page.state == HELD && page.kind == managed);
                let free = view.free(device) + view.header.devices[device].late;
                let room = free + evictable.count() as u64;
                let kind = [Kind::Linear, Kind::Managed][(random >> 32) as usize & 1];
                match view.take(&dead, slot, device, kind, count) {
                    Some((runs, _)) => {
                        if kind == Kind::Managed && random >> 33 & 1 == 0 {
                            let numbers =
                                runs.iter().flat_map(|run| run.first..run.first + run.pages);
                            let stamped = view.stamp(device, numbers);
                            view.keep(slot, device, &stamped);
                            view.use_again(slot, device, &stamped[..stamped.len() / 2]);
                        }
                        held.push((slot, device, runs));
                    }
                    None => assert!(room < count, "an allocation that fits must succeed"),
                }
            }
            3..=4 => {
                if let Some(index) = held.iter().position(|(owner, ..)| *owner == slot) {
                    let (_, device, runs) = held.swap_remove(index);
                    view.give(slot, device, &runs);
                }
            }
            5 => {
                // Managed memory is not shared.
                let movable = |device: usize, runs: &[PageRun]| {
                    let first = runs.first().map_or(0, |run| run.first as usize);
                    view.pages[device * view.per_device + first].kind == Kind::Managed as u8
                };
                let found = held
                    .iter()
                    .position(|(owner, device, runs)| *owner == slot && !movable(*device, runs));
                if let Some(index) = found {
                    let (_, device, runs) = held.swap_remove(index);
                    view.share(slot, device, &runs);
                }
            }
            6 => view.note(slot, device, Kind::Array, (random >> 40).cast_signed()),
            _ if random >> 24 & 3 == 0 => {
                dead.0.push(slot);
                held.retain(|(owner, ..)| *owner != slot);
                view.reap(&dead);
            }
            _ => view.tick(&dead),
        }
        let [kept, recomputed] = sums(&mut view);
        assert_eq!(kept, recomputed, "step {step}");
    }
}

#[test]
fn freed_pages_return_after_at_most_eight_operations() {
    let mut header = header();
    let mut pages = vec![Page::default(); 64];
    let mut view = view((&mut header, &mut pages), 64);
    let none_dead = Dead(Vec::new());
    let slot = view.enter(1, false, |_| true).unwrap();
    let mut delays = std::collections::BTreeSet::new();
    for _ in 0..100 {
        let runs = view.take(&none_dead, slot, 0, Kind::Linear, 5).unwrap().0;
        view.give(slot, 0, &runs);
        let mut operations = 0;
        while view.free(0) < 64 {
            view.tick(&none_dead);
            operations += 1;
        }
        delays.insert(operations);
    }
    assert!(
        delays.iter().all(|delay| (1..=MOST_LATE).contains(delay)) && delays.len() > 3,
        "{delays:?}"
    );
}

#[test]
fn linger_delays_the_return_of_a_dead_process_s_pages() {
    let mut header = header();
    let mut pages = vec![Page::default(); 64];
    let mut view = view((&mut header, &mut pages), 64);
    view.linger = 20;
    let slot = view.enter(1, false, |_| true).unwrap();
    view.take(&Dead(Vec::new()), slot, 0, Kind::Linear, 5)
        .unwrap();
    let dead = Dead(vec![slot]);
    view.reap(&dead);
    let mut operations = 0;
    while view.free(0) < 64 {
        view.tick(&dead);
        operations += 1;
    }
    assert!((21..=20 + MOST_LATE).contains(&operations), "{operations}");
}

#[test]
fn a_death_is_found_again_after_its_finder_died() {
    let mut header = header();
    let mut pages = vec![Page::default(); 64];
    let mut view = view((&mut header, &mut pages), 64);
    let slot = view.enter(1, false, |_| true).unwrap();
    view.take(&Dead(Vec::new()), slot, 0, Kind::Linear, 5)
        .unwrap();
    // The state at the finder's death.
    view.header.slots[slot].dead = 1;
    view.repair();
    let dead = Dead(vec![slot]);
    for _ in 0..=MOST_LATE {
        view.reap(&dead);
        view.tick(&dead);
    }
    assert_eq!(view.free(0), 64);
    assert_eq!(view.header.slots[slot].number, 0);
}

#[test]
fn managed_pages_leave_for_any_process_the_first_to_come_first() {
    let mut header = header();
    let mut pages = vec![Page::default(); 16];
    let mut view = view((&mut header, &mut pages), 16);
    let none_dead = Dead(Vec::new());
    let [first, second] = [1, 2].map(|pid| view.enter(pid, false, |_| true).unwrap());
    let bring = |view: &mut View<'_>, slot, count| {
        let (runs, evicted) = view.take(&none_dead, slot, 0, Kind::Managed, count)?;
        let numbers = runs.iter().flat_map(|run| run.first..run.first + run.pages);
        Some((view.stamp(0, numbers), evicted))
    };
    let (old, none) = bring(&mut view, first, 6).unwrap();
    let (young, _) = bring(&mut view, second, 6).unwrap();
    assert_eq!(none, 0);
    let here = |view: &View<'_>, slot, pages: &[Resident]| {
        let pages = pages.iter();
        pages.filter(|page| view.has(slot, 0, **page)).count()
    };
    let (runs, evicted) = view
        .take(&Dead(Vec::new()), second, 0, Kind::Linear, 8)
        .unwrap();
    assert_eq!((evicted, runs.iter().map(|run| run.pages).sum()), (4, 8));
    assert_eq!(
        (here(&view, first, &old), here(&view, second, &young)),
        (2, 6)
    );
    assert_eq!(
        view.header.slots[first].uses[0].pages[Kind::Managed as usize],
        2
    );
    // An allocation that no eviction can make room for evicts nothing.
    assert!(
        view.take(&Dead(Vec::new()), first, 0, Kind::Linear, 9)
            .is_none()
    );
    assert_eq!(
        (here(&view, first, &old), here(&view, second, &young)),
        (2, 6)
    );
    // A page that was evicted is not freed for its new owner.
    view.give_managed(first, 0, &old);
    view.collect(0, u64::MAX);
    assert_eq!(view.free(0), 2);
    view.evicts = false;
    assert!(
        view.take(&Dead(Vec::new()), first, 0, Kind::Linear, 3)
            .is_none()
    );
}

#[test]
fn what_is_kept_of_pages_at_home_leaves_first_and_counts_as_no_eviction() {
    let mut header = header();
    let mut pages = vec![Page::default(); 16];
    let mut view = view((&mut header, &mut pages), 16);
    let none_dead = Dead(Vec::new());
    let slot = view.enter(1, false, |_| true).unwrap();
    let bring = |view: &mut View<'_>, count| {
        let (runs, _) = view
            .take(&none_dead, slot, 0, Kind::Managed, count)
            .unwrap();
        let numbers = runs.iter().flat_map(|run| run.first..run.first + run.pages);
        view.stamp(0, numbers)
    };
    let (old, young) = (bring(&mut view, 8), bring(&mut view, 8));
    view.keep(slot, 0, &young);
    view.keep(slot, 0, &young);
    assert_eq!(view.header.slots[slot].uses[0].kept, 8);
    assert_eq!(view.free(0), 0, "it stays taken");
    let (_, moved) = view.take(&none_dead, slot, 0, Kind::Linear, 6).unwrap();
    assert_eq!((moved, view.header.devices[0].evicted), (0, 0));
    let here = |view: &View<'_>, pages: &[Resident]| {
        let pages = pages.iter();
        pages.filter(|page| view.has(slot, 0, **page)).count()
    };
    assert_eq!((here(&view, &old), here(&view, &young)), (8, 2));
    let again = view.use_again(slot, 0, &young);
    assert_eq!(again.iter().flatten().count(), 2);
    let again: Vec<Resident> = again.into_iter().flatten().collect();
    assert_eq!(view.header.slots[slot].uses[0].kept, 0);
    // What has come back leaves as what came then.
    let (_, moved) = view.take(&none_dead, slot, 0, Kind::Linear, 9).unwrap();
    assert_eq!((moved, here(&view, &old), here(&view, &again)), (9, 0, 1));
    assert_eq!(view.header.devices[0].evicted, 9);
}

/// The pages that `view` has to erase, which stays to be done.
fn to_erase(view: &mut View<'_>) -> Vec<(usize, PageRun)> {
    std::mem::take(&mut view.erase)
}

/// All eight pages of device 0 were a dead process's. That one, and the slot of one that lives.
fn dead_with_all_pages(view: &mut View<'_>) -> (Dead, usize) {
    let [first, next] = [1, 2].map(|pid| view.enter(pid, false, |_| true).unwrap());
    let none_dead = Dead(Vec::new());
    view.take(&none_dead, first, 0, Kind::Linear, 8).unwrap();
    let dead = Dead(vec![first]);
    view.reap(&dead);
    view.collect(0, u64::MAX);
    (dead, next)
}

#[test]
fn a_page_whose_erasing_was_cut_short_is_erased_for_the_next_process() {
    let mut header = header();
    let mut pages = vec![Page::default(); 8];
    let mut view = view((&mut header, &mut pages), 8);
    let (dead, next) = dead_with_all_pages(&mut view);
    let all = PageRun { first: 0, pages: 8 };
    assert_eq!(to_erase(&mut view), [(0, all)]);
    // The process that was to erase them is killed: another repairs the state.
    view.repair();
    view.take(&dead, next, 0, Kind::Linear, 8).unwrap();
    assert_eq!(to_erase(&mut view), [(0, all)]);
}

#[test]
fn pages_that_are_erased_are_taken_as_they_are_and_failed_ones_are_not() {
    let mut header = header();
    let mut pages = vec![Page::default(); 8];
    let mut view = view((&mut header, &mut pages), 8);
    let (dead, next) = dead_with_all_pages(&mut view);
    to_erase(&mut view);
    let [good, bad] = [(0, 6), (6, 2)].map(|(first, pages)| PageRun { first, pages });
    view.erased(0, good, true);
    view.erased(0, bad, false);
    view.take(&dead, next, 0, Kind::Managed, 8).unwrap();
    assert_eq!(to_erase(&mut view), [(0, bad)]);
    // It failed again, and this managed memory leaves for other memory of the process.
    view.erased(0, bad, false);
    view.take(&dead, next, 0, Kind::Linear, 8).unwrap();
    assert_eq!(to_erase(&mut view), [(0, bad)]);
}

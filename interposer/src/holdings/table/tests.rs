//! The pointer table: exact and interior addresses, odd ones, contexts that go.

use super::*;
use crate::account::Units;
use crate::driver::device::DeviceKey;

const BASE: u64 = 0x7f00_0000_0000;
const MIB: u64 = 1 << 20;

fn record(context: u16, bytes: u64) -> Record {
    let device = DeviceKey::of_index(3).unwrap();
    Record::new(
        device,
        ContextId(context),
        Kind::Linear,
        Units(u32::try_from(bytes / 512).unwrap()),
    )
}

#[test]
fn a_record_keeps_what_it_was_made_of() {
    let device = DeviceKey::of_index(15).unwrap();
    let record = Record::new(device, ContextId(4095), Kind::Imported, Units(u32::MAX));
    assert_eq!(
        (
            record.device(),
            record.context(),
            record.kind(),
            record.units(),
            record.is_exported()
        ),
        (
            device,
            ContextId(4095),
            Kind::Imported,
            Units(u32::MAX),
            false
        )
    );
    let exported = record.exported();
    assert!(exported.is_exported());
    assert_eq!(
        (exported.units(), exported.kind(), exported.context()),
        (record.units(), record.kind(), record.context())
    );
}

#[test]
fn what_was_entered_is_taken_once() {
    let table = Table::new();
    assert_eq!(table.insert(BASE, record(1, 512)), None);
    assert_eq!(table.take(BASE), Some(record(1, 512)));
    assert_eq!(
        table.take(BASE),
        None,
        "a double free is the driver's to answer"
    );
    assert_eq!(table.take(BASE + 512), None);
    assert_eq!(table.take(0), None);
}

#[test]
fn an_address_entered_again_gives_up_the_stale_record() {
    let table = Table::new();
    table.insert(BASE + 512, record(1, 512));
    assert_eq!(
        table.insert(BASE + 512, record(2, 1024)),
        Some(record(1, 512))
    );
    assert_eq!(table.take(BASE + 512), Some(record(2, 1024)));
}

#[test]
fn every_address_in_an_allocation_finds_it_and_none_beside_it() {
    let table = Table::new();
    for (start, bytes) in [
        (BASE, 8 * MIB),
        (BASE + 8 * MIB, 1536),
        (BASE + 9 * MIB + 512, 3 * MIB),
        (BASE + 31 * MIB, 2 * MIB - 512),
    ] {
        table.insert(start, record(1, bytes));
        for inside in [
            start,
            start + 1,
            start + 511,
            start + bytes / 2,
            start + bytes - 1,
        ] {
            assert_eq!(
                table.find(inside),
                Some((start, record(1, bytes))),
                "{inside:#x} in {start:#x}"
            );
        }
        assert_eq!(table.find(start + bytes), None, "{start:#x}");
    }
    assert_eq!(table.find(BASE - 1), None);
    table.take(BASE);
    assert_eq!(table.find(BASE + MIB), None, "freed");
}

#[test]
fn addresses_without_a_cell_are_kept_all_the_same() {
    let table = Table::new();
    for odd in [BASE + 7, u64::MAX - 1023, 1 << 60] {
        table.insert(odd, record(1, 1024));
        assert_eq!(table.find(odd + 100), Some((odd, record(1, 1024))));
        assert!(table.update(odd, Record::exported));
        assert_eq!(table.take(odd), Some(record(1, 1024).exported()));
        assert_eq!(table.take(odd), None);
    }
}

#[test]
fn a_record_of_a_kind_is_taken_and_one_of_another_stays() {
    let table = Table::new();
    let large = record(1, 4 * MIB);
    let imported = Record::new(large.device(), ContextId(1), Kind::Imported, Units(0));
    for address in [BASE, BASE + 7, 1 << 60] {
        table.insert(address, imported);
        assert_eq!(table.take_of(address, Kind::Linear), None);
        assert_eq!(table.take_of(address, Kind::Imported), Some(imported));
        assert_eq!(table.take_of(address, Kind::Imported), None, "once");
        table.insert(address, large);
        assert_eq!(table.take_of(address, Kind::Imported), None);
        assert_eq!(table.find(address + MIB), Some((address, large)));
        assert_eq!(table.take_of(address, Kind::Linear), Some(large));
        assert_eq!(table.find(address + MIB), None);
    }
}

#[test]
fn a_context_that_goes_takes_its_own_records_and_no_others() {
    let table = Table::new();
    let addresses = [BASE, BASE + 512, BASE + 4 * MIB, BASE + 7, 1 << 50];
    for (i, address) in addresses.iter().enumerate() {
        table.insert(*address, record(1, 512 * (i as u64 + 1)));
        table.insert(*address + 64 * MIB, record(2, 512));
    }
    let credited = std::cell::Cell::new(0);
    table.drain(ContextId(1), |record| {
        credited.set(credited.get() + record.bytes())
    });
    assert_eq!(credited.get(), 512 * 15);
    for address in addresses {
        assert_eq!(table.take(address), None);
        assert_eq!(table.take(address + 64 * MIB), Some(record(2, 512)));
    }
}

#[test]
fn a_refused_free_puts_back_what_a_living_context_has() {
    let table = Table::new();
    for address in [BASE, BASE + 512, BASE + 4 * MIB, BASE + 7, 1 << 60] {
        let free = |context: u16, is_alive: bool| {
            let record = record(context, 4 * MIB);
            table.insert(address, record);
            assert_eq!(table.take(address), Some(record));
            (table.put_back(address, record, || is_alive), record)
        };
        let (over, alive) = free(1, true);
        assert_eq!(over, None);
        assert_eq!(table.find(address + MIB), Some((address, alive)));
        let (over, dead) = free(2, false);
        assert_eq!(over, Some(dead), "nobody else would credit it");
        assert_eq!(table.find(address + MIB), None);
        let (over, none) = free(ContextId::NONE.0, false);
        assert_eq!((over, table.take(address)), (None, Some(none)));
    }
}

#[test]
fn a_refused_free_leaves_the_addresss_next_allocation_its_record() {
    let table = Table::new();
    let (old, next) = (record(1, 4 * MIB), record(2, 8 * MIB));
    for address in [BASE, BASE + 7] {
        table.insert(address, next);
        assert_eq!(table.put_back(address, old, || true), Some(old));
        assert_eq!(table.find(address + 5 * MIB), Some((address, next)));
    }
}

/// Between the two halves of a drain: the driver has freed the address before, and gives it again.
#[test]
fn bounds_that_are_another_allocations_by_now_stay() {
    let table = Table::new();
    let next = record(2, 8 * MIB);
    table.insert(BASE, next);
    table.leave_large_late(BASE);
    assert_eq!(table.find(BASE + 5 * MIB), Some((BASE, next)));
    assert_eq!(table.take(BASE), Some(next));
    table.insert(BASE, record(2, 512));
    table.leave_large_late(BASE);
    assert!(locked(&table.large).is_empty());
}

#[test]
fn threads_that_enter_and_take_beside_each_other_lose_nothing() {
    let table = Table::new();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let table = &table;
            scope.spawn(move || {
                for round in 0..3 {
                    for i in 0..4096 {
                        // Interleaved, so that the threads share leaves and make them at once.
                        let address = BASE + (i * 4 + thread) * 512;
                        assert_eq!(table.insert(address, record(1, 512 * (round + 1))), None);
                    }
                    for i in 0..4096 {
                        let address = BASE + (i * 4 + thread) * 512;
                        assert_eq!(table.take(address), Some(record(1, 512 * (round + 1))));
                    }
                }
            });
        }
    });
}

/// The nearest record before an address, looked for one cell after another.
fn before_by_steps(table: &Table, address: u64) -> Option<(u64, Record)> {
    let first = address & !511;
    let mut starts = (0..4096).map_while(|steps| first.checked_sub(steps * 512));
    starts.find_map(|start| Some((start, table.exact.cell(start, false)?.get()?)))
}

#[test]
fn the_record_before_an_address_is_the_nearest_one_within_a_span() {
    let table = Table::new();
    let none = table.exact.before(BASE);
    assert_eq!(none, None);
    // At a span's first cell, its second, its last, and alone in a span without a leaf.
    for start in [0, 512, 2 * MIB - 512, 2 * MIB, 5 * MIB + 1024, 12 * MIB] {
        table.insert(BASE + start, record(1, 512));
    }
    table.insert(0, record(2, 512));
    let near = |at: u64| [at.wrapping_sub(1), at, at + 1, at + 511, at + 512, at + 513];
    let spans = (0..9).flat_map(|span| near(BASE + span * 2 * MIB));
    let cells = [
        512,
        2 * MIB - 512,
        5 * MIB + 1024,
        7 * MIB + 512,
        7 * MIB + 1024,
    ];
    let cells = cells.into_iter().flat_map(|at| near(BASE + at));
    let lowest = near(0).into_iter().chain(near(2 * MIB)).chain([1 << 57]);
    let mut found = 0;
    for address in spans.chain(cells).chain(lowest) {
        let wanted = before_by_steps(&table, address);
        assert_eq!(table.exact.before(address), wanted, "{address:#x}");
        found += u32::from(wanted.is_some());
    }
    assert!(found > 20, "{found}");
}

#[test]
fn an_address_that_no_record_is_near_takes_few_walks() {
    let table = Table::new();
    table.insert(BASE + 512, record(1, 512));
    for address in [BASE + MIB, BASE + 3 * MIB, BASE + 64 * MIB, 4096] {
        let before = radix::WALKS.get();
        assert_eq!(table.find(address), None);
        let walks = radix::WALKS.get() - before;
        assert!(walks <= 4, "{walks} walks for {address:#x}");
    }
}

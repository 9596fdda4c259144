use super::*;

const BASE: u64 = 32 << 20;
const BYTES: u64 = 32 << 20;

fn pool(handle: usize) -> Pool {
    Pool {
        handle: CUmemoryPool(core::ptr::without_provenance_mut(handle)),
        device: DeviceKey::of_index(0).unwrap(),
        ordinal: 0,
        books: PoolBooks::default(),
        most: 0,
        growing: 0,
        threshold: 0,
        access: Vec::new(),
        is_destroyed: false,
    }
}

fn pooled() -> (Pooled, PoolId) {
    let mut pooled = Pooled::default();
    let pool = pooled.enter(pool(0));
    (pooled, pool)
}

fn grows(pooled: &mut Pooled, pool: PoolId) -> Grown {
    Grown {
        base: BASE,
        serial: pooled.grow(pool, BASE, BYTES),
        at: 0,
    }
}

fn charges_given_back(pooled: &mut Pooled) -> Vec<Units> {
    let gone = pooled.release(&mut |_, _| 0);
    gone.into_iter().map(|(_, _, charge)| charge).collect()
}

#[test]
fn charge_of_a_segment_goes_with_it() {
    let (mut pooled, pool) = pooled();
    let grown = grows(&mut pooled, pool);
    assert!(pooled.charged(grown, Units(5)));
    assert_eq!(charges_given_back(&mut pooled), [Units(5)]);
    assert!(!pooled.charged(grown, Units(5)), "it is gone");
}

#[test]
fn charge_of_a_segment_that_has_gone_is_not_the_next_ones() {
    let (mut pooled, pool) = pooled();
    let first = grows(&mut pooled, pool);
    assert_eq!(charges_given_back(&mut pooled), [Units(0)]);
    let second = grows(&mut pooled, pool);
    assert!(pooled.charged(second, Units(7)));
    assert!(!pooled.charged(first, Units(5)));
    assert_eq!(charges_given_back(&mut pooled), [Units(7)]);
}

#[test]
fn what_is_made_for_a_pool_takes_its_room_but_does_not_fill_it() {
    let mut limited = pool(0);
    limited.most = BYTES;
    assert_eq!(limited.room(BYTES), Room::Free);
    limited.growing = BYTES;
    assert_eq!(limited.room(BYTES), Room::Coming);
    limited.growing = 0;
    limited.books.grow(BASE, BYTES);
    assert_eq!(limited.room(BYTES), Room::Full);
    limited.most = 0;
    limited.growing = BYTES;
    assert_eq!(limited.room(u64::MAX), Room::Free);
}

#[test]
fn a_destroyed_pool_leaves_its_handle_to_the_next_one() {
    let mut pooled = Pooled::default();
    let first = pooled.enter(pool(64));
    // The driver gives the handle again before the first destruction is noted.
    let second = pooled.enter(pool(64));
    pooled.destroyed(64, Some(first));
    assert_eq!(pooled.handles.get(&64), Some(&Some(second)));
    assert!(pooled.pools[&first].is_destroyed);
    assert!(!pooled.pools[&second].is_destroyed);
    pooled.destroyed(64, Some(second));
    assert_eq!(pooled.handles.get(&64), None);
}

#[test]
fn a_pool_that_is_left_to_the_driver_leaves_its_handle_too() {
    let mut pooled = Pooled::default();
    pooled.handles.insert(64, None);
    let second = pooled.enter(pool(64));
    pooled.destroyed(64, None);
    assert_eq!(pooled.handles.get(&64), Some(&Some(second)));
    assert!(!pooled.pools[&second].is_destroyed);
}

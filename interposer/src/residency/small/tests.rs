use super::*;
use crate::residency::room::GRAIN;
use crate::residency::slab::KEPT;

const ONE: ContextId = ContextId(1);
const TWO: ContextId = ContextId(2);

fn smalls() -> Smalls {
    let mut smalls = Smalls::default();
    smalls.add(ONE, DeviceKey::default(), SLAB, SLAB);
    smalls
}

fn bases(list: &[Empty]) -> Vec<u64> {
    list.iter().map(|empty| empty.base).collect()
}

/// Frees what begins here.
fn give(smalls: &mut Smalls, at: u64) -> Given {
    smalls.give(at, |_, _| true)
}

/// Takes a part for so many bytes.
fn take(smalls: &mut Smalls, owner: ContextId, bytes: u64) -> Option<u64> {
    smalls.take(owner, u32::try_from(bytes).unwrap())
}

/// The serial of the allocation that begins here.
fn serial(smalls: &Smalls, at: u64) -> u64 {
    let (begin, small) = smalls.find(at).unwrap();
    assert_eq!(begin, at);
    small.serial
}

#[test]
fn an_address_belongs_to_one_allocation_or_none() {
    let mut smalls = smalls();
    let first = take(&mut smalls, ONE, 1000).unwrap();
    let second = take(&mut smalls, ONE, 1).unwrap();
    assert_eq!((first, second), (SLAB, SLAB + 1024));
    assert_eq!(smalls.find(first + 999).map(|(at, _)| at), Some(first));
    assert!(smalls.find(first + 1000).is_none(), "behind its end");
    assert!(smalls.find(second + 1).is_none());
    assert!(smalls.find(first - 1).is_none() && smalls.find(2 * SLAB).is_none());
    assert_eq!(smalls.used(SLAB), 1025);
    assert_eq!(
        give(&mut smalls, first + 512),
        Given::Nothing,
        "not where it begins"
    );
    assert_eq!(
        give(&mut smalls, first + 1),
        Given::Nothing,
        "beside where it begins"
    );
    assert_eq!(give(&mut smalls, first), Given::Freed);
    assert_eq!(
        give(&mut smalls, first),
        Given::Nothing,
        "it is free already"
    );
    assert!(smalls.find(first).is_none());
    assert_eq!(smalls.used(SLAB), 1025);
    give(&mut smalls, second);
    assert_eq!(smalls.used(SLAB), 0);
}

#[test]
fn a_free_may_be_refused_and_the_allocation_stays() {
    let mut smalls = smalls();
    let at = take(&mut smalls, ONE, 1000).unwrap();
    let (device, serial) = smalls.begins(at).unwrap();
    let refused = smalls.give(at, |of, known| {
        assert_eq!((of, known), (device, serial));
        false
    });
    assert_eq!(refused, Given::Kept);
    assert!(smalls.find(at + 999).is_some());
    assert!(smalls.begins(at + 512).is_none(), "not where it begins");
    assert_eq!(smalls.give(at, |_, known| known == serial), Given::Freed);
    assert_eq!(take(&mut smalls, ONE, 1000), Some(at));
    let other = smalls.give(at, |_, known| known == serial);
    assert_eq!(other, Given::Kept, "another one by now");
    assert_eq!(
        give(&mut smalls, at + 1024),
        Given::Nothing,
        "there is none"
    );
}

#[test]
fn contexts_share_no_slab() {
    let mut smalls = smalls();
    assert_eq!(take(&mut smalls, TWO, 512), None);
    smalls.add(TWO, DeviceKey::default(), 8 * SLAB, SLAB);
    let of_two = take(&mut smalls, TWO, 512).unwrap();
    let of_one = take(&mut smalls, ONE, 512).unwrap();
    let gone = smalls.context_gone(TWO);
    assert_eq!(bases(&gone), [8 * SLAB]);
    assert!(smalls.find(of_two).is_none() && smalls.find(of_one).is_some());
    assert_eq!(take(&mut smalls, TWO, 512), None);
}

#[test]
fn one_empty_slab_is_kept_for_a_while() {
    let mut smalls = smalls();
    smalls.add(ONE, DeviceKey::default(), 8 * SLAB, SLAB);
    let list = [0; 3].map(|_| take(&mut smalls, ONE, SLAB / 2).unwrap());
    let too_many = list.map(|at| give(&mut smalls, at));
    assert_eq!(too_many, [Given::Freed, Given::Freed, Given::OneTooMany]);
    assert_eq!(bases(&smalls.too_many(ONE)), [8 * SLAB]);
    assert_eq!(smalls.too_many(ONE), []);
    assert!(!smalls.is_due(100), "nobody had looked");
    assert!(!smalls.is_due(100 + KEPT - 1));
    assert_eq!(smalls.idle(100 + KEPT - 1), []);
    let again = take(&mut smalls, ONE, 512).unwrap();
    give(&mut smalls, again);
    assert!(!smalls.is_due(100 + KEPT), "it was in use since");
    assert!(smalls.is_due(100 + 2 * KEPT));
    assert_eq!(bases(&smalls.idle(100 + 2 * KEPT)), [SLAB]);
    assert_eq!(
        take(&mut smalls, ONE, 512),
        None,
        "it is not there any more"
    );
}

#[test]
fn a_charge_is_of_one_slab_and_not_of_its_successor() {
    let mut smalls = Smalls::default();
    let first = smalls.add(ONE, DeviceKey::default(), SLAB, SLAB);
    assert_eq!(smalls.spare(DeviceKey::default()).len(), 1);
    let second = smalls.add(ONE, DeviceKey::default(), SLAB, SLAB);
    assert!(!smalls.charged(SLAB, first, Units(9)), "that one has gone");
    assert!(smalls.charged(SLAB, second, Units(7)));
    assert!(!smalls.charged(2 * SLAB, second, Units(9)), "there is none");
    assert_eq!(smalls.spare(DeviceKey::default())[0].charge, Units(7));
}

#[test]
fn a_slab_in_use_is_not_given_back() {
    let mut smalls = smalls();
    let at = take(&mut smalls, ONE, 512).unwrap();
    assert_eq!(smalls.spare(DeviceKey::default()), []);
    give(&mut smalls, at);
    assert_eq!(bases(&smalls.spare(DeviceKey::default())), [SLAB]);
}

#[test]
fn an_allocation_has_a_number_of_its_own_and_another_after_a_move() {
    let mut smalls = smalls();
    let first = take(&mut smalls, ONE, 512).unwrap();
    let its = number(serial(&smalls, first), 0);
    assert_ne!(number(serial(&smalls, first), 1), its);
    give(&mut smalls, first);
    assert_eq!(take(&mut smalls, ONE, 512), Some(first));
    assert_ne!(number(serial(&smalls, first), 0), its);
}

/// Beside a list of what is allocated: no two overlap, none crosses a slab, all that fits in
/// any free stretch is found as long as few slabs are asked, and all becomes free again.
#[test]
fn random_allocations_never_overlap_and_all_space_is_found_again() {
    let mut smalls = Smalls::default();
    let count = 4;
    for slab in 1..=count {
        smalls.add(ONE, DeviceKey::default(), slab * SLAB, SLAB);
    }
    let mut seed = 7_u64;
    let mut random = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    let grains = |bytes: u64| bytes.div_ceil(GRAIN) * GRAIN;
    for _ in 0..20_000 {
        let bytes = match random(4) {
            0 => 1 + random(1 << 19),
            1 => 1 + random(64 << 10),
            _ => 1 + random(4096),
        };
        if random(2) == 0 {
            let longest = (1..=count).map(|slab| {
                let (from, to) = (slab * SLAB, (slab + 1) * SLAB);
                let (mut end, mut longest) = (from, 0);
                for (at, bytes) in live.range(from..to) {
                    longest = longest.max(at - end);
                    end = at + grains(*bytes);
                }
                longest.max(to - end)
            });
            let longest = longest.max().unwrap_or(0);
            let taken = take(&mut smalls, ONE, bytes);
            assert_eq!(
                taken.is_some(),
                grains(bytes) <= longest,
                "{bytes} {longest}"
            );
            let Some(at) = taken else { continue };
            assert_eq!(at / SLAB, (at + bytes - 1) / SLAB);
            let before = live.range(..at).next_back();
            assert!(before.is_none_or(|(other, bytes)| other + grains(*bytes) <= at));
            let behind = live.range(at..).next();
            assert!(behind.is_none_or(|(other, _)| *other >= at + grains(bytes)));
            live.insert(at, bytes);
        } else if !live.is_empty() {
            let nth = usize::try_from(random(live.len() as u64)).unwrap();
            let (&at, &bytes) = live.iter().nth(nth).unwrap();
            live.remove(&at);
            let (_, small) = smalls.find(at + random(bytes)).unwrap();
            assert_eq!(small.bytes, bytes);
            let given = give(&mut smalls, at);
            assert!(!matches!(given, Given::Nothing | Given::Kept), "{given:?}");
        }
    }
    for at in live.keys() {
        assert_ne!(give(&mut smalls, *at), Given::Nothing);
    }
    for _ in 0..count {
        assert!(
            take(&mut smalls, ONE, SLAB).is_some(),
            "a whole slab is free again"
        );
    }
}

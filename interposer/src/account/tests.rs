//! Joining, growing and dying. Every member here has an open file description of its own, so
//! members of one test process meet as processes do.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::sync::atomic::Ordering;
use std::time::Duration;

use gpushare_protocol::limits::Limits;
use gpushare_protocol::page::{MAX_SLOTS, UNIT};
use gpushare_protocol::paths::{Root, TENANT, TenantName};

use super::join::{Membership, Request, StartError, join};
use super::lock::Unavailable;
use super::process::Identity;
use super::{grow, limbo, lock, process, quota_status_by_request_in, stale};
use crate::driver::device::{DeviceKey, Visible};

mod dead;

const MIB: u64 = 1 << 20;
pub(super) const GPU: Visible = Visible {
    uuid: *b"GPU zero........",
    capacity: 1024 * MIB,
};
const OTHER_GPU: Visible = Visible {
    uuid: *b"GPU one.........",
    capacity: 2048 * MIB,
};

/// A runtime folder of its own.
pub(super) struct World {
    _folder: tempfile::TempDir,
    pub(super) root: Root,
    uid: u32,
}

impl World {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let uid = fs::metadata(folder.path()).unwrap().uid();
        let root = Root::open(Some(folder.path()), uid).unwrap();
        Self {
            _folder: folder,
            root,
            uid,
        }
    }

    pub(super) fn join_as(
        &self,
        name: Option<&str>,
        limits: &[(&str, &str)],
        devices: &[Visible],
    ) -> Result<Membership, StartError> {
        let me = Identity {
            pid: 4_194_305,
            start: 7,
        };
        self.join_by(me, name, limits, devices)
    }

    /// The same for a process of that identity.
    pub(super) fn join_by(
        &self,
        me: Identity,
        name: Option<&str>,
        limits: &[(&str, &str)],
        devices: &[Visible],
    ) -> Result<Membership, StartError> {
        let limits = limits
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let limits = Limits::from_env(limits).unwrap();
        let name = name.map(|name| TenantName::parse(TENANT, name).unwrap());
        join(&Request {
            root: &self.root,
            uid: self.uid,
            name,
            me,
            limits: &limits,
            devices,
        })
    }

    fn join(&self, limit: &str) -> Membership {
        self.join_as(Some("a"), &[("GPUSHARE_MEM_LIMIT", limit)], &[GPU])
            .unwrap()
    }
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes / UNIT).unwrap()
}

pub(super) fn charge(member: &Membership, bytes: u64) -> bool {
    let device_index = member.device_indices[0];
    member
        .line(device_index)
        .unwrap()
        .word
        .charge(units(bytes))
        .is_ok()
        || {
            let call = crate::session::Deadline::new();
            grow::grow(member, device_index, units(bytes), grow::Asking::Now, &call).is_ok()
        }
}

fn release(member: &Membership, bytes: u64) {
    member
        .line(member.device_indices[0])
        .unwrap()
        .word
        .release(units(bytes));
}

fn charged(member: &Membership) -> u64 {
    member.charged(member.device_indices[0]) * UNIT
}

#[test]
fn processes_of_one_tenant_share_one_limit_to_the_last_unit() {
    let world = World::new();
    let (a, b) = (world.join("100MiB"), world.join("100MiB"));
    assert_ne!(a.slot, b.slot);
    assert!(charge(&a, 60 * MIB));
    assert!(charge(&b, 40 * MIB - UNIT));
    assert!(!charge(&b, 2 * UNIT));
    assert!(charge(&b, UNIT));
    assert!(!charge(&a, UNIT));
    release(&a, UNIT);
    assert!(charge(&b, UNIT), "what one gave back the other can have");
    assert_eq!((charged(&a), charged(&b)), (100 * MIB, 100 * MIB));
}

#[test]
fn a_refused_request_leaves_the_others_credit_alone() {
    let world = World::new();
    let (a, b) = (world.join("100MiB"), world.join("100MiB"));
    assert!(charge(&a, MIB) && charge(&b, MIB));
    let before = a.line(0).unwrap().word.load();
    assert!(!charge(&b, 99 * MIB));
    assert_eq!(a.line(0).unwrap().word.load(), before);
}

#[test]
fn credit_forced_above_the_limit_is_given_back_with_the_bytes() {
    let world = World::new();
    let (a, b) = (world.join("100MiB"), world.join("100MiB"));
    assert!(charge(&a, 90 * MIB) && charge(&b, 10 * MIB));
    assert_eq!(grow::anyway(&a, 0, units(32 * MIB)), units(32 * MIB));
    assert_eq!(charged(&a), 132 * MIB);
    release(&a, 122 * MIB);
    grow::released(&a, 0);
    assert!(charge(&a, 90 * MIB), "what fits fits again");
    assert!(!charge(&a, UNIT), "and not a byte more");
    release(&a, 90 * MIB);
    assert!(charge(&b, 90 * MIB) && !charge(&b, UNIT));
}

#[test]
fn credit_forced_above_the_limit_is_given_back_in_steps() {
    let world = World::new();
    let (a, b) = (world.join("100MiB"), world.join("100MiB"));
    assert!(charge(&a, 90 * MIB) && charge(&b, 10 * MIB));
    assert_eq!(grow::anyway(&a, 0, units(32 * MIB)), units(32 * MIB));
    for step in [10, 22] {
        release(&a, step * MIB);
        grow::released(&a, 0);
    }
    assert_eq!(charged(&a), 100 * MIB);
    assert!(!charge(&a, UNIT), "no credit is left above the limit");
    release(&a, UNIT);
    assert!(charge(&a, UNIT), "and no less than fits");
}

#[test]
fn without_a_limit_nothing_is_refused_and_everything_is_counted() {
    let world = World::new();
    let member = world.join_as(Some("a"), &[], &[GPU]).unwrap();
    assert!(
        charge(&member, 4096 * MIB),
        "more than the device: the driver decides"
    );
    assert_eq!(charged(&member), 4096 * MIB);
}

#[test]
fn equal_limits_join_in_any_spelling_and_others_are_refused() {
    let world = World::new();
    let _one = world.join("1GiB");
    let _same = world.join("1024MiB");
    let refused = world
        .join_as(Some("a"), &[("GPUSHARE_MEM_LIMIT", "2GiB")], &[GPU])
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains(TENANT) && refused.contains("\"a\"") && refused.contains("accepted"),
        "{refused}"
    );
    world
        .join_as(Some("b"), &[("GPUSHARE_MEM_LIMIT", "2GiB")], &[GPU])
        .unwrap();
}

#[test]
fn a_tenant_nobody_lives_in_takes_new_limits() {
    let world = World::new();
    drop(world.join("1GiB"));
    let member = world.join("10MiB");
    assert!(charge(&member, 10 * MIB) && !charge(&member, UNIT));
}

#[test]
fn devices_are_told_apart_by_uuid_in_any_order() {
    let world = World::new();
    let limits = [("GPUSHARE_MEM_LIMIT", "64MiB")];
    let a = world
        .join_as(Some("a"), &limits, &[GPU, OTHER_GPU])
        .unwrap();
    let b = world.join_as(Some("a"), &limits, &[OTHER_GPU]).unwrap();
    assert_eq!(a.device_indices[1], b.device_indices[0]);
    assert!(charge(&a, 64 * MIB), "on the first device");
    assert!(charge(&b, 64 * MIB), "on the other one");
    assert_eq!(charged(&a), 64 * MIB);
}

#[test]
fn an_ordinals_limit_that_means_another_device_is_refused() {
    let world = World::new();
    let limits = [("GPUSHARE_MEM_LIMIT_0", "64MiB")];
    let _a = world
        .join_as(Some("a"), &limits, &[GPU, OTHER_GPU])
        .unwrap();
    let refused = world
        .join_as(Some("a"), &limits, &[OTHER_GPU])
        .unwrap_err()
        .to_string();
    assert!(refused.contains("CUDA_VISIBLE_DEVICES"), "{refused}");
}

#[test]
fn a_full_tenant_says_so() {
    let world = World::new();
    let _members: Vec<Membership> = (0..MAX_SLOTS).map(|_| world.join("100MiB")).collect();
    let refused = world
        .join_as(Some("a"), &[("GPUSHARE_MEM_LIMIT", "100MiB")], &[GPU])
        .unwrap_err();
    assert!(matches!(refused, StartError::Full), "{refused}");
}

#[test]
fn a_lost_file_ends_growth_and_nothing_else() {
    let world = World::new();
    let member = world.join("100MiB");
    assert!(charge(&member, MIB));
    fs::remove_dir_all(world.root.path()).unwrap();
    assert!(charge(&member, UNIT), "within credit");
    assert!(!charge(&member, 50 * MIB));
    release(&member, MIB);
    assert!(charge(&member, MIB));
}

#[test]
fn a_lock_that_is_never_given_back_is_waited_for_in_bounded_time() {
    let world = World::new();
    let (a, b) = (world.join("100MiB"), world.join("100MiB"));
    assert!(charge(&a, MIB));
    let held = lock::take(&b.backend, &b.threads).unwrap();
    let refused = lock::take_within(&a.backend, &a.threads, Duration::from_millis(20));
    assert!(matches!(refused, Err(Unavailable::Busy)), "{refused:?}");
    assert!(charge(&a, UNIT), "charges within credit go on");
    release(&a, MIB);
    drop(held);
    assert!(charge(&a, 50 * MIB), "and growth when it is given back");
}

#[test]
fn an_unnamed_tenant_is_removed_when_all_its_processes_are_gone() {
    let world = World::new();
    let folder = |member: &Membership| world.root.folder(&member.name);
    let unnamed = || world.join_as(None, &[], &[GPU]).unwrap();
    let member = unnamed();
    let place = folder(&member);
    stale::remove(&world.root);
    assert!(
        place.exists(),
        "its founder is gone, but a process lives in it"
    );
    drop(member);
    stale::remove(&world.root);
    assert!(!place.exists());
    let named = world.join("100MiB");
    let place = folder(&named);
    drop(named);
    stale::remove(&world.root);
    assert!(
        place.exists(),
        "a named tenant is not removed automatically"
    );
    drop(unnamed());
}

#[test]
fn folders_that_stay_keep_no_others_from_being_removed() {
    let world = World::new();
    let make = |name: String| {
        let path = world.root.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    };
    let (me, namespace) = (process::this(), process::namespace());
    let mut stay: Vec<_> = (0..300)
        .map(|number| make(format!("named-{number}")))
        .collect();
    stay.push(make(format!("p{}-{}-{namespace}", me.pid, me.start)));
    // No process of its pid started then.
    let left: Vec<_> = (0..stale::AT_MOST + 6)
        .map(|number| make(format!("p{}-{}", me.pid, number + 1)))
        .collect();
    let left = || left.iter().filter(|left| left.exists()).count();
    stale::remove(&world.root);
    assert_eq!(left(), 6, "the next founder removes these");
    stale::remove(&world.root);
    assert_eq!(left(), 0);
    assert!(stay.iter().all(|stays| stays.exists()));
}

#[test]
fn a_file_that_was_cut_short_is_made_whole_when_nobody_lives_in_it() {
    let world = World::new();
    let member = world.join("100MiB");
    let file = world.root.folder(&member.name).join("usage");
    drop(member);
    fs::write(&file, b"").unwrap();
    assert!(charge(&world.join("100MiB"), MIB));
    fs::write(&file, vec![1; 600_000]).unwrap();
    let refused = world.join_as(Some("a"), &[], &[GPU]).map(|_| ());
    assert!(
        refused.is_ok(),
        "bytes that are no page are replaced: {refused:?}"
    );
}

#[test]
fn a_page_of_another_version_is_made_anew_when_nobody_lives_in_it() {
    let world = World::new();
    let member = world.join("100MiB");
    let version = &member.page.header.version;
    version.store(1 << 16 | 4, Ordering::Relaxed);
    let refused = world.join_as(Some("a"), &[], &[GPU]).unwrap_err();
    assert!(matches!(refused, StartError::Page(..)), "{refused}");
    let told = refused.to_string();
    assert!(told.contains("version 1, this is version 2"), "{told}");
    drop(member);
    let member = world.join("100MiB");
    assert_eq!(member.page.check(), Ok(()));
    assert!(charge(&member, MIB));
}

#[test]
fn a_folder_behind_a_link_or_open_to_others_is_refused() {
    let world = World::new();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), world.root.path().join("a")).unwrap();
    let refused = world.join_as(Some("a"), &[], &[GPU]).unwrap_err();
    assert!(matches!(refused, StartError::Folder(..)), "{refused}");
    fs::create_dir(world.root.path().join("b")).unwrap();
    fs::set_permissions(
        world.root.path().join("b"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    assert!(matches!(
        world.join_as(Some("b"), &[], &[GPU]).unwrap_err(),
        StartError::Folder(..)
    ));
}

/// Threads stand for processes: each has a membership of its own.
#[test]
fn members_that_race_never_pass_the_limit_and_what_fits_is_granted() {
    use std::sync::atomic::{AtomicU64, Ordering};
    const LIMIT: u64 = 64 * MIB;
    let world = World::new();
    let members: Vec<Membership> = (0..4).map(|_| world.join("64MiB")).collect();
    let held = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for (index, member) in members.iter().enumerate() {
            let held = &held;
            scope.spawn(move || {
                for round in 0..500_u64 {
                    // Four times 16 MiB at the most: always fits.
                    let bytes =
                        (round * 7919 + index as u64 * 104_729) % (16 * MIB / UNIT) * UNIT + UNIT;
                    assert!(charge(member, bytes), "{bytes} bytes that fit were refused");
                    let sum = held.fetch_add(bytes, Ordering::SeqCst) + bytes;
                    assert!(sum <= LIMIT, "{sum} bytes held under a limit of {LIMIT}");
                    held.fetch_sub(bytes, Ordering::SeqCst);
                    release(member, bytes);
                    assert!(!charge(member, LIMIT + UNIT), "a huge request is refused");
                }
            });
        }
    });
    assert_eq!(charged(&members[0]), 0);
}

/// The free memory shown keeps the least sum of both for ever, so one torn pair would lower it.
#[test]
fn charges_of_all_and_own_charges_are_of_one_moment() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let world = World::new();
    let limits = [
        ("GPUSHARE_MEM_LIMIT", "100MiB"),
        ("GPUSHARE_MEM_REQUEST", "100MiB"),
        ("GPUSHARE_MEM_VIEW", "request"),
    ];
    let member = world.join_as(Some("a"), &limits, &[GPU]).unwrap();
    let member: &'static Membership = Box::leak(Box::new(member));
    let device = DeviceKey::of_index(member.device_indices[0]).unwrap();
    let done = AtomicBool::new(false);
    let apart = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert!(charge(member, 3 * MIB));
                release(member, 3 * MIB);
            }
        });
        let apart = (0..200_000).find_map(|_| {
            let (status, by_request) = quota_status_by_request_in(member, device)?;
            let own = by_request?.own;
            (status.charged != own).then_some((status.charged, own))
        });
        done.store(true, Ordering::Relaxed);
        apart
    });
    assert_eq!(apart, None, "no other process has charged anything");
    assert!(charge(member, MIB));
    let (status, by_request) = quota_status_by_request_in(member, device).unwrap();
    let own = by_request.expect("the program sees the request").own;
    assert_eq!((status.charged, own), (MIB, MIB));
}

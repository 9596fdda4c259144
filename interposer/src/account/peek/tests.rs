//! Looks at files of tenants. Every member has an open file description of its own, as processes
//! do.

use gpushare_protocol::paths::{TENANT, TenantName};

use super::super::process::{self, Identity};
use super::super::tests::{GPU, World, charge};
use super::books_in;

const MIB: u64 = 1 << 20;

#[test]
fn a_look_counts_the_living_and_knows_the_dead_by_pids_of_their_own() {
    let world = World::new();
    let this = process::this();
    let another = Identity {
        start: this.start + 2,
        ..this
    };
    let gone = Identity {
        pid: 4_194_306,
        start: 7,
    };
    let limits = [("GPUSHARE_MEM_LIMIT", "100MiB")];
    let join = |me| world.join_by(me, Some("a"), &limits, &[GPU]).unwrap();
    let folder = world.root.folder(&TenantName::parse(TENANT, "a").unwrap());
    let look = |pid: u32| {
        let books = books_in(&folder).unwrap();
        let shown = books.members.shown(&[pid]) == [Some(pid)];
        let limit = books.page.devices.first().and_then(|device| device.limit);
        (books.page.charged(0), limit, shown)
    };
    for (me, alive, dead) in [
        (gone, true, true),
        // Another process that has its pid now is not the tenant's.
        (another, false, false),
        (this, true, false),
    ] {
        let member = join(me);
        assert!(charge(&member, 10 * MIB));
        let limit = Some(100 * MIB);
        assert_eq!(look(me.pid), (10 * MIB, limit, alive), "{me:?}");
        let sibling = join(Identity {
            pid: 4_194_305,
            ..gone
        });
        drop(member);
        assert_eq!(look(me.pid), (0, limit, dead), "{me:?}");
        assert!(look(4_194_305).2);
        drop(sibling);
        assert_eq!(look(me.pid), (0, None, dead), "{me:?}");
    }
}

//! Pages that a process presents to a daemon that took its tenant over.

use gpushare_core::DeviceId;
use gpushare_protocol::page::UNIT;
use gpushare_protocol::page::residency::Movability;
use nix::sys::resource::{UsageWho, getrusage};

use super::looks::write_row;
use super::*;
use crate::node::Row;
use crate::node::awaited::Member;

/// So often is the lock of a tenant tried whose limit is lowered; the loop sleeps between.
const TRIES: i64 = 50;

/// How often this thread has slept in there.
fn sleeps(within: impl FnOnce()) -> i64 {
    let slept = || {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
        usage.voluntary_context_switches()
    };
    let before = slept();
    within();
    slept() - before
}

/// A page of the previous daemon.
fn page() -> UsagePage {
    let page = UsagePage::create().unwrap();
    page.view().found(7, 9);
    page
}

impl Scene {
    /// Its tenant was a previous daemon's.
    fn restored() -> Self {
        let mut scene = Self::new();
        scene.known().restored();
        scene
    }

    fn known(&mut self) -> &mut Tenant {
        self.node.tenants.get_mut(&self.tenant).unwrap()
    }

    /// The process presents this page, and is registered.
    fn presents(&mut self, page: &UsagePage) {
        let shown = page.descriptor().try_clone_to_owned().unwrap();
        assert!(self.tries(Some(shown)).process.is_some());
        while self.node.poll_effect().is_some() {}
        assert!(self.known().usage().is(&page.descriptor()));
    }
}

#[test]
fn a_page_whose_lock_its_presenter_holds_is_taken_without_a_sleep() {
    let mut scene = Scene::restored();
    let page = page();
    let mut slept = 0;
    assert!(page.locked_within(1, || slept = sleeps(|| scene.presents(&page))));
    assert!(slept < TRIES / 2, "{slept} times");
}

#[test]
fn a_tenant_whose_limit_is_lowered_is_waited_for() {
    let mut scene = Scene::restored();
    let page = page();
    scene.presents(&page);
    let mut slept = 0;
    let lowers = || scene.known().hold_to(&[(0, Bytes(GIB))]);
    assert!(page.locked_within(1, || slept = sleeps(lowers)));
    assert!(slept >= TRIES - 1, "{slept} times");
}

#[test]
fn a_page_that_another_takes_the_place_of_is_closed_on_its_lane() {
    let mut scene = Scene::restored();
    let pages = [page(), page()];
    // One is the test's own.
    let kept = || pages.each_ref().map(|page| copies(page) - 1);
    let (go, goes) = std::sync::mpsc::channel::<()>();
    let lane = scene.node.lane(scene.tenant);
    lane.run(move || assert!(goes.recv().is_err()));
    for page in &pages {
        scene.presents(page);
        scene.settle_door();
    }
    assert_eq!(kept(), [1, 1]);
    drop(go);
    while kept() != [0, 1] {
        std::thread::yield_now();
    }
}

impl Scene {
    /// The descriptors that the tenant's processes passed are closed.
    fn settle_door(&self) {
        let door = self.node.door_lane(self.tenant);
        while !door.is_idle() {
            std::thread::yield_now();
        }
    }
}

/// The same, and the row 1 of it is that of a dead process with 1 GiB.
fn page_with_a_dead_row() -> UsagePage {
    let page = page();
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    write_row(&page, (1, child.id(), 0));
    let units = u32::try_from(GIB / UNIT).unwrap();
    page.view().line(1, 0).unwrap().word.charge_anyway(units);
    page
}

impl Scene {
    /// The rows of the page are looked at. The bytes that count as held by the tenant's dead then.
    fn limbo(&mut self, second: u64) -> Bytes {
        let now = NOW + Nanos::secs(second);
        self.node.tick(now);
        for rows in self.rows_to_look_at() {
            self.node.rows_seen(now, self.tenant, &Row::dead(&rows));
        }
        let account = self.node.world.account(self.tenant, DeviceId(0));
        account.unwrap().limbo
    }
}

#[test]
fn the_dead_of_the_first_page_count_and_those_of_later_pages_do_not() {
    let mut scene = Scene::restored();
    let pages = [(); 3].map(|()| page_with_a_dead_row());
    for (second, page) in (1..).zip(&pages) {
        scene.presents(page);
        assert_eq!(scene.limbo(second), Bytes(GIB), "page {second}");
        let row = &page.view().slots[1];
        let taken = row.taken.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(taken, 0, "the row is free");
    }
}

/// How many processes a tenant has that awaits a child, whose row a presented page shows, before
/// and after a look at the child. It began so much later than what was written down.
fn members_beside_an_awaited_one(later: u64) -> [usize; 2] {
    let mut scene = Scene::restored();
    let control = scene.known().control().view();
    control.set_movability(Movability::Fixed);
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let seen = Seen::of(child.id().cast_signed()).unwrap();
    let member = Member {
        pid: child.id(),
        start: seen.start() + later,
        program: None,
    };
    scene.node.await_members(scene.tenant, &[member]);
    let awaited = *scene.known().awaited().keys().next().unwrap();
    let page = page();
    // Its limits are not written anew, and with them whether memory moves.
    page.view().header.set_text(scene.known().limits());
    // As a daemon leaves it that ends before it has looked at the process.
    write_row(&page, (1, child.id(), 0));
    scene.presents(&page);
    let before = scene.known().members().count();
    scene.node.identified(NOW, awaited, Some(seen));
    let after = scene.known().members().count();
    child.kill().unwrap();
    child.wait().unwrap();
    [before, after]
}

#[test]
fn an_awaited_process_is_a_member_once_a_look_has_shown_that_it_is_one() {
    assert_eq!(members_beside_an_awaited_one(0), [1, 2]);
}

#[test]
fn another_process_that_has_the_pid_of_an_awaited_one_is_no_member() {
    assert_eq!(members_beside_an_awaited_one(1), [1, 1]);
}

//! Pages that a process presents to a daemon that took its tenant over.

use nix::sys::resource::{UsageWho, getrusage};

use super::*;

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
    /// What the tenant's processes passed is closed.
    fn settle_door(&self) {
        let door = self.node.door_lane(self.tenant);
        while !door.is_idle() {
            std::thread::yield_now();
        }
    }
}

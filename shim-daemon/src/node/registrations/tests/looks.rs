//! Looks at processes on a lane that may stand.

use super::*;
use crate::devices::Look;
use crate::node::Row;
use gpushare_core::DeviceId;
use gpushare_protocol::units::MIB;

/// Writes into a page that a row is taken: its number, the pid, and the start.
pub(super) fn write_row(page: &UsagePage, (slot, pid, start): (usize, u32, u64)) {
    use std::sync::atomic::Ordering::Relaxed;
    let row = &page.view().slots[slot];
    row.taken.store(1, Relaxed);
    row.generation.store(u64::from(pid), Relaxed);
    row.start.store(start, Relaxed);
}

impl Scene {
    /// The looks at processes that are wanted by now.
    fn looks(&mut self) -> usize {
        let effects = std::iter::from_fn(|| self.node.poll_effect());
        let looks = effects.filter(|one| matches!(one, Effect::Identify { .. }));
        looks.count()
    }

    /// The device is looked at if that is wanted, and shows 64 MiB of the process. Whether it was.
    fn look_comes(&mut self, now: Nanos) -> bool {
        let mut effects = std::iter::from_fn(|| self.node.poll_effect());
        let is_wanted = effects.any(|one| matches!(one, Effect::Look { .. }));
        let used = Bytes(64 * MIB);
        let look = Look {
            used,
            free: Bytes(16 * GIB) - used,
            processes: Some(vec![(std::process::id(), used)]),
            drawing: BTreeSet::new(),
            busy: None,
            health: None,
        };
        if is_wanted {
            self.node.looked(now, 0, now, Ok(look));
        }
        is_wanted
    }

    /// The memory of the tenant's contexts, in MiB.
    fn overhead(&self) -> u64 {
        let account = self.node.world.account(self.tenant, DeviceId(0)).unwrap();
        account.overhead.0 / MIB
    }
}

#[test]
fn a_context_that_is_never_said_to_be_made_is_measured_after_ten_seconds() {
    let mut scene = Scene::new();
    let client = scene.registers();
    let open = Request::Open { device_index: 0 };
    scene.node.request(NOW, client, 2, &open);
    let expected = scene.overhead();
    assert_ne!(expected, 64);
    for (after, overhead) in [(1, expected), (9, expected), (10, 64)] {
        let now = NOW + Nanos::secs(after);
        scene.node.tick(now);
        assert!(scene.look_comes(now));
        assert_eq!(scene.overhead(), overhead, "after {after} s");
    }
}

#[test]
fn a_context_that_is_said_to_be_made_again_and_again_costs_one_look() {
    let mut scene = Scene::new();
    let client = scene.registers();
    let open = Request::Open { device_index: 0 };
    scene.node.request(NOW, client, 2, &open);
    assert!(!scene.look_comes(NOW));
    let looks = (0..100).filter(|_| {
        let made = Request::ContextMade { device_index: 0 };
        scene.node.request(NOW, client, 3, &made);
        scene.look_comes(NOW)
    });
    assert_eq!(looks.count(), 1);
    assert_eq!(scene.overhead(), 64);
}

#[test]
fn one_look_at_a_process_is_under_way_and_one_follows_it() {
    let mut scene = Scene::new();
    let client = scene.registers();
    assert_eq!(scene.looks(), 1);
    scene.node.disconnected(NOW, client);
    for second in 1..100 {
        scene.node.tick(NOW + Nanos::secs(second));
    }
    assert_eq!(scene.looks(), 0, "the first has no answer");
    scene.is_looked_at(client.process.unwrap());
    assert_eq!(scene.looks(), 1);
    scene.is_looked_at(client.process.unwrap());
    assert_eq!(scene.looks(), 0);
}

#[test]
fn nobody_registers_in_a_tenant_whose_lane_stands() {
    let mut scene = Scene::new();
    let lane = scene.node.lane(scene.tenant);
    let go = lane.stands();
    while scene.node.poll_effect().is_some() {}
    assert_eq!(scene.tries(None).process, None);
    let effects = std::iter::from_fn(|| scene.node.poll_effect());
    let asked_again = effects.filter(
        |one| matches!(one, Effect::Client { reply: Reply::Error(error), .. } if error.can_retry),
    );
    assert_eq!(asked_again.count(), 1);
    drop(go);
    while lane.is_full() {
        std::thread::yield_now();
    }
    scene.registers();
}

/// A child, and the rows of a presented page that name it.
#[test]
fn rows_of_living_processes_are_looked_at_by_one_work_at_a_time() {
    let mut scene = Scene::new();
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let start = Seen::of(child.id().cast_signed()).unwrap().start();
    scene.takes_rows(&[
        (0, child.id(), start),
        (1, child.id(), 0),
        (2, child.id(), 1),
    ]);
    let now = |second| NOW + Nanos::secs(second);
    scene.node.tick(now(1));
    scene.node.tick(now(2));
    let rows = scene.rows_to_look_at();
    assert_eq!(rows.len(), 1, "the other look waits for this one");
    scene
        .node
        .rows_seen(now(2), scene.tenant, &Row::dead(&rows[0]));
    assert_eq!(
        scene.rows_taken(),
        [0, 1],
        "no process of this pid started then"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    scene.node.tick(now(3));
    let rows = scene.rows_to_look_at();
    // Another process took one meanwhile.
    scene.writes_rows(&[(1, 1, 0)]);
    scene
        .node
        .rows_seen(now(3), scene.tenant, &Row::dead(&rows[0]));
    assert_eq!(scene.rows_taken(), [1]);
}

#[test]
fn rows_of_which_no_process_has_the_pid_are_free_without_a_look() {
    let mut scene = Scene::new();
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    scene.takes_rows(&[(0, child.id(), 0), (1, child.id(), 9), (2, 1, 0), (3, 0, 0)]);
    scene.node.recovered(NOW);
    assert_eq!(scene.rows_taken(), [2]);
    assert_eq!(scene.rows_to_look_at().len(), 0);
}

#[test]
fn a_row_that_is_taken_after_its_page_has_come_is_none_of_the_dead() {
    let mut scene = Scene::new();
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    // The first process lives.
    scene.takes_rows(&[(0, 1, 0)]);
    scene.writes_rows(&[(1, child.id(), 0), (2, child.id(), 9)]);
    scene.node.tick(NOW + Nanos::secs(1));
    let rows = scene.rows_to_look_at();
    assert_eq!(rows.len(), 1);
    assert_eq!(Row::dead(&rows[0]), []);
    scene.node.recovered(NOW);
    assert_eq!(scene.rows_taken(), [0, 1, 2]);
}

#[test]
fn a_row_that_was_emptied_is_none_of_the_dead_when_it_is_written_again() {
    let mut scene = Scene::new();
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let row = (1, child.id(), 9);
    scene.takes_rows(&[(0, 1, 0), row]);
    scene.node.recovered(NOW);
    assert_eq!(scene.rows_taken(), [0]);
    scene.writes_rows(&[row]);
    scene.node.recovered(NOW);
    assert_eq!(scene.rows_taken(), [0, 1]);
}

impl Scene {
    /// Rows of the page were taken when it came: their numbers, the pids, and their starts.
    fn takes_rows(&mut self, rows: &[(usize, u32, u64)]) {
        self.writes_rows(rows);
        let known = self.node.tenants.get_mut(&self.tenant).unwrap();
        known.may_have_rows();
    }

    /// A process of the tenant writes into its page that these rows are taken.
    fn writes_rows(&mut self, rows: &[(usize, u32, u64)]) {
        let known = self.node.tenants.get_mut(&self.tenant).unwrap();
        for row in rows {
            write_row(known.usage(), *row);
        }
    }

    fn rows_taken(&self) -> Vec<usize> {
        let known = &self.node.tenants[&self.tenant];
        let rows = known.usage().view().slots.iter().enumerate();
        let taken =
            rows.filter(|(_, row)| row.taken.load(std::sync::atomic::Ordering::Relaxed) != 0);
        taken.map(|(slot, _)| slot).collect()
    }

    /// The looks at rows that are wanted.
    pub(super) fn rows_to_look_at(&mut self) -> Vec<Vec<Row>> {
        let effects = std::iter::from_fn(|| self.node.poll_effect());
        let rows = effects.filter_map(|one| match one {
            Effect::LookAtRows { rows, .. } => Some(rows),
            _ => None,
        });
        rows.collect()
    }
}

//! Dead processes are known by their pids for as long as a device may list them. Where none lists
//! any, they are known for as long as they may hold memory: a list may come again.

use std::collections::BTreeSet;

use gpushare_core::ProcessId;

use super::super::Node;

impl Node {
    /// A look listed these processes: the dead that no device lists any more are forgotten.
    pub(super) fn forget_graves(&mut self, device: usize, listed: &[u32]) {
        let looks = &self.looks;
        self.processes.keep_dead(|pid, process| {
            listed.contains(&pid) || looks.show_elsewhere(device, process)
        });
    }

    /// Once a second: does the same where no look lists processes.
    pub(super) fn forget_unlisted_graves(&mut self) {
        let looks = &self.looks;
        if (0..self.devices.len()).any(|device| looks.lists(device)) {
            return;
        }
        let dead: BTreeSet<ProcessId> = self.world.dead().map(|dead| dead.process).collect();
        self.processes
            .keep_dead(|_, process| dead.contains(&process) || looks.show(process));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use gpushare_core::{Nanos, TenantId};
    use gpushare_protocol::units::{Bytes, GIB, MIB};
    use gpushare_protocol::wire::{Control, Register, Request};

    use super::*;
    use crate::devices::{Capabilities, Device, Look, LookError};
    use crate::groups::Groups;
    use crate::node::{Client, ConnId, Settings};
    use crate::peer::{Peer, inspect};

    /// A device's list: each pid and its bytes.
    type List = Option<Vec<(u32, Bytes)>>;

    const NOW: Nanos = Nanos::secs(100);
    /// The pid of the first process.
    const FIRST: i32 = 1_000_000_000;

    /// A tenant on each device of a node.
    struct Scene {
        node: Node,
        tenant: TenantId,
        now: Nanos,
        next: i32,
    }

    impl Scene {
        fn new(devices: u8) -> Self {
            let device = |mark| Device {
                uuid: [mark; 16],
                minor: None,
                name: "a GPU".to_owned(),
                capacity: Bytes(16 * GIB),
                capabilities: Capabilities::default(),
            };
            let devices = (1..=devices).map(device).collect();
            let settings = Settings {
                own_pids: true,
                ..Settings::default()
            };
            let mut node = Node::new(&settings, devices, 1, NOW, false);
            let limits = [
                ("GPUSHARE_MEM_REQUEST", "0"),
                ("GPUSHARE_MEM_LIMIT", "8GiB"),
            ];
            let create = Control::Create {
                name: Some("one".to_owned()),
                environment: limits.map(|(a, b)| (a.to_owned(), b.to_owned())).into(),
                devices: vec![],
            };
            node.command(NOW, ConnId(1), 1, &create);
            let (tenant, _) = node.find("one").unwrap();
            Self {
                node,
                tenant,
                now: NOW,
                next: FIRST,
            }
        }

        /// A process registers, and has a context if it `opens` one. Returns its pid, too.
        fn registers(&mut self, opens: bool) -> (ProcessId, u32) {
            let pid = self.next;
            self.next += 1;
            let peer = Peer {
                pid,
                uid: 0,
                pidfd: inspect(std::process::id()).unwrap().pidfd,
                cgroup: "/session".to_owned(),
                groups: Groups::default(),
            };
            let client = Client {
                connection: ConnId(u64::from(pid.unsigned_abs())),
                tenant: self.tenant,
                process: None,
                gated: true,
                moves: false,
            };
            let register = Register {
                pid: pid.unsigned_abs(),
                presents_page: false,
                slot: None,
            };
            let request = (1, &register);
            let process = self.node.register(self.now, client, request, peer, None);
            let client = Client { process, ..client };
            if opens {
                let open = Request::Open { device_index: 0 };
                self.node.request(self.now, client, 2, &open);
            }
            (process.unwrap(), pid.unsigned_abs())
        }

        fn ends(&mut self, process: ProcessId) {
            self.node.process_ended(self.now, process);
            while self.node.poll_effect().is_some() {}
        }

        /// A second passes, in which each device is looked at. Of one without an answer the look
        /// says that it is lost.
        fn second(&mut self, answers: &[Option<List>]) {
            self.now = self.now + Nanos::secs(1);
            self.node.tick(self.now);
            for (device, answer) in answers.iter().enumerate() {
                let look = answer.clone().ok_or(LookError::Lost).map(|processes| Look {
                    used: Bytes::ZERO,
                    free: Bytes(16 * GIB),
                    processes,
                    drawing: BTreeSet::new(),
                    busy: None,
                    health: None,
                });
                self.node.looked(self.now, device, self.now, look);
            }
            while self.node.poll_effect().is_some() {}
        }

        /// The pids of the dead that are known.
        fn dead(&self) -> BTreeSet<u32> {
            self.node.processes.dead().map(|(_, pid)| pid).collect()
        }
    }

    #[test]
    fn where_no_look_lists_processes_the_dead_are_forgotten() {
        let mut scene = Scene::new(2);
        for _ in 0..1000 {
            let (process, _) = scene.registers(false);
            scene.ends(process);
        }
        scene.second(&[Some(None), Some(None)]);
        scene.second(&[Some(None), Some(None)]);
        assert_eq!(scene.dead().len(), 0);
    }

    #[test]
    fn where_no_look_lists_processes_one_that_may_hold_memory_is_known() {
        let mut scene = Scene::new(1);
        let (process, pid) = scene.registers(true);
        scene.second(&[Some(None)]);
        scene.ends(process);
        assert!(scene.node.world.dead().count() > 0);
        let mut seconds = 0;
        while scene.node.world.dead().count() > 0 {
            assert_eq!(scene.dead(), [pid].into());
            scene.second(&[Some(None)]);
            seconds += 1;
            assert!(seconds < 100, "its memory is believed gone in the end");
        }
        scene.second(&[Some(None)]);
        assert_eq!(scene.dead().len(), 0);
    }

    #[test]
    fn a_dead_process_that_a_device_lists_is_known_until_it_does_not() {
        let mut scene = Scene::new(1);
        let (process, pid) = scene.registers(false);
        let listed = || Some(Some(vec![(pid, Bytes(MIB))]));
        scene.second(&[listed()]);
        scene.ends(process);
        for _ in 0..100 {
            scene.second(&[listed()]);
            assert_eq!(scene.dead(), [pid].into());
        }
        // A list that could not be had this time says nothing.
        scene.second(&[Some(None)]);
        scene.second(&[listed()]);
        assert_eq!(scene.dead(), [pid].into());
        scene.second(&[Some(Some(vec![]))]);
        assert_eq!(scene.dead().len(), 0);
    }

    #[test]
    fn what_a_device_listed_before_it_was_lost_keeps_no_dead_process() {
        let mut scene = Scene::new(2);
        let (process, pid) = scene.registers(false);
        let listed = || Some(Some(vec![(pid, Bytes(MIB))]));
        scene.second(&[listed(), listed()]);
        scene.ends(process);
        scene.second(&[Some(Some(vec![])), listed()]);
        assert_eq!(scene.dead(), [pid].into(), "the other lists it");
        for _ in 0..2 {
            scene.second(&[Some(Some(vec![])), None]);
            assert_eq!(scene.dead(), [pid].into(), "it may answer again");
        }
        scene.second(&[Some(Some(vec![])), None]);
        scene.second(&[Some(Some(vec![]))]);
        assert_eq!(scene.dead().len(), 0);
    }

    #[test]
    fn of_a_node_whose_only_device_is_lost_no_dead_are_kept() {
        let mut scene = Scene::new(1);
        let (process, pid) = scene.registers(false);
        scene.second(&[Some(Some(vec![(pid, Bytes(MIB))]))]);
        (0..3).for_each(|_| scene.second(&[None]));
        scene.ends(process);
        scene.second(&[]);
        assert_eq!(scene.dead().len(), 0);
    }

    #[test]
    fn the_tenant_of_a_process_is_known_for_ten_seconds_after_its_end() {
        let mut scene = Scene::new(1);
        let (process, pid) = scene.registers(false);
        scene.ends(process);
        for _ in 0..9 {
            scene.second(&[Some(Some(vec![]))]);
            assert_eq!(scene.node.processes.ended_lately(pid), Some(scene.tenant));
        }
        scene.second(&[Some(Some(vec![]))]);
        assert_eq!(scene.node.processes.ended_lately(pid), None);
    }

    #[test]
    fn another_process_of_that_pid_is_not_taken_for_the_one_that_ended() {
        let mut scene = Scene::new(1);
        let (process, pid) = scene.registers(false);
        scene.ends(process);
        scene.next -= 1;
        assert_eq!(scene.registers(false).1, pid);
        assert_eq!(scene.node.processes.ended_lately(pid), None);
    }
}

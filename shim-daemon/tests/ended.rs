//! How often tenants were told to end, by reason: the node without sockets.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::driver::{Backend, Driver};
use crate::support::create;
use gpushare_core::Nanos;
use gpushare_protocol::wire::*;
use gpushared::devices::Devices as _;
use gpushared::node::{ConnId, Effect, Node, Settings};

/// A node with one tenant, which runs for an hour at most.
struct Scene {
    node: Node,
    asked: u64,
    second: u64,
}

impl Scene {
    fn new() -> Self {
        let devices = Driver::of(Backend::Misc).list().unwrap();
        let now = Nanos::secs(1000);
        let mut scene = Self {
            node: Node::new(&Settings::default(), devices, 1, now, false),
            asked: 0,
            second: 0,
        };
        let reply = scene.ask(&create("a", &[("GPUSHARE_RUN_LIMIT", "1h")]));
        assert!(matches!(reply, ControlReply::Created { .. }), "{reply:?}");
        scene
    }

    fn ask(&mut self, request: &Control) -> ControlReply {
        self.asked += 1;
        let now = Nanos::secs(1000 + self.second);
        self.node.command(now, ConnId(self.asked), 1, request);
        let mut answer = None;
        while let Some(effect) = self.node.poll_effect() {
            if let Effect::Command { to, reply, .. } = effect
                && to == ConnId(self.asked)
            {
                answer = Some(reply);
            }
        }
        answer.unwrap()
    }

    /// An hour passes.
    fn hour(&mut self) {
        self.second += 3_600;
        self.node.tick(Nanos::secs(1000 + self.second));
    }

    fn set(&mut self, limit: &str) {
        let set = Control::Set {
            tenant: "a".to_owned(),
            changes: vec![("GPUSHARE_RUN_LIMIT".to_owned(), limit.to_owned())],
        };
        assert_eq!(self.ask(&set), ControlReply::Done);
    }

    fn end(&mut self) {
        let end = Control::End {
            tenant: "a".to_owned(),
            kill: false,
        };
        assert_eq!(self.ask(&end), ControlReply::Done);
    }

    /// By its run limit, and by a command.
    fn counts(&mut self) -> [u64; 2] {
        let page = self.ask(&Listing::Metrics.first());
        let ControlReply::Page {
            rows: Rows::Metrics(rows),
            ..
        } = page
        else {
            panic!("{page:?}")
        };
        let node = rows.iter().find_map(|row| match row {
            MetricsRow::Node(node) => Some([node.ended_run_limit, node.ended_command]),
            _ => None,
        });
        node.unwrap()
    }
}

#[test]
fn a_tenant_told_to_end_again_counts_by_the_first_reason() {
    let mut scene = Scene::new();
    scene.end();
    assert_eq!(scene.counts(), [0, 1]);
    // It does not heed that, and its time is up.
    scene.hour();
    assert_eq!(scene.counts(), [0, 1]);
    scene.end();
    assert_eq!(scene.counts(), [0, 1]);
}

#[test]
fn a_tenant_spared_and_ended_by_a_command_counts_by_both_reasons() {
    let mut scene = Scene::new();
    scene.hour();
    assert_eq!(scene.counts(), [1, 0]);
    scene.set("10h");
    scene.end();
    assert_eq!(scene.counts(), [1, 1]);
}

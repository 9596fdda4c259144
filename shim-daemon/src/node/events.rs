//! What happened, kept for `events`: a bounded ring, and the connections that follow it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gpushare_core::{DeviceId, TenantId};
use gpushare_protocol::wire::EventRow;

use super::tenant::index;
use super::{ConnId, Effect, Node};

/// Events kept for a follower that comes later.
const KEPT: usize = 1024;

/// The longest text of an event, in bytes; the rest is cut.
const LONGEST: usize = 4096;

/// The ring and its followers.
#[derive(Debug, Default)]
pub(super) struct Events {
    past: VecDeque<Arc<EventRow>>,
    followers: Vec<(ConnId, u32)>,
}

impl Events {
    /// As many of the last ones, oldest first, as there are.
    fn last(&self, many: u32) -> Vec<Arc<EventRow>> {
        let many = usize::try_from(many).unwrap_or(KEPT);
        let skipped = self.past.len().saturating_sub(many);
        self.past.iter().skip(skipped).cloned().collect()
    }
}

impl Node {
    #[expect(
        clippy::disallowed_methods,
        reason = "a label for people: nothing is decided by it"
    )]
    pub(super) fn event(
        &mut self,
        kind: &str,
        tenant: Option<TenantId>,
        device: Option<DeviceId>,
        mut text: String,
    ) {
        if text.len() > LONGEST {
            text.truncate(text.floor_char_boundary(LONGEST - 3));
            text.push('…');
        }
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let row = Arc::new(EventRow {
            at_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            kind: kind.to_owned(),
            tenant: tenant.map(|tenant| self.name(tenant)),
            device: device
                .and_then(index)
                .and_then(|at| self.devices.get(at))
                .map(|device| device.uuid),
            text,
        });
        if !self.events.followers.is_empty() {
            let (to, row) = (self.events.followers.clone(), Arc::clone(&row));
            self.effect(Effect::Event { to, row });
        }
        self.events.past.push_back(row);
        if self.events.past.len() > KEPT {
            self.events.past.pop_front();
        }
    }

    pub(super) fn follow(&mut self, to: ConnId, id: u32, past: u32) {
        for row in self.events.last(past) {
            let to = vec![(to, id)];
            self.effect(Effect::Event { to, row });
        }
        // A connection gets each event once.
        self.unfollow(to);
        self.events.followers.push((to, id));
    }

    pub(super) fn unfollow(&mut self, connection: ConnId) {
        self.events.followers.retain(|(to, _)| *to != connection);
    }

    /// A tenant's name, for messages.
    pub(super) fn name(&self, tenant: TenantId) -> String {
        let known = self.tenants.get(&tenant);
        known.map_or_else(
            || "(ended)".to_owned(),
            |known| known.registration.name.clone(),
        )
    }

    /// A device's name, for messages.
    pub(super) fn device_name(&self, device: DeviceId) -> String {
        let known = index(device).and_then(|at| Some((at, self.devices.get(at)?)));
        known.map_or_else(
            || "a lost device".to_owned(),
            |(at, known)| format!("device {at} ({})", known.name),
        )
    }
}

//! Waiting for a state of a daemon. All looks of one wait share a connection.

use std::fmt::Debug;

use gpushare_protocol::wire::{Control, ControlReply, Listing, ShareRow, TenantRow};

use crate::daemon::{Commands, Daemon, first, rows_of, share_of, shares_in, waits};
use crate::waiting::until_holds;

/// A connection for commands that is opened again where it broke: daemons are started again
/// meanwhile.
struct Connection<'a> {
    daemon: &'a Daemon,
    open: Option<Commands>,
}

impl Connection<'_> {
    fn ask(&mut self, request: &Control) -> ControlReply {
        let kept = self.open.as_mut();
        if let Some(Ok(reply)) = kept.map(|open| open.try_ask(request)) {
            return reply;
        }
        self.open.insert(self.daemon.commands()).ask(request)
    }
}

impl Daemon {
    /// Waits until `wanted` holds for what `read` takes from the answers to this request.
    #[track_caller]
    fn until_answered<T: Debug>(
        &self,
        request: &Control,
        read: impl Fn(ControlReply) -> T,
        wanted: impl Fn(&T) -> bool,
    ) -> T {
        let (daemon, open) = (self, None);
        let mut connection = Connection { daemon, open };
        until_holds(|| read(connection.ask(request)), wanted)
    }

    /// Waits until `wanted` holds for a tenant's row.
    #[track_caller]
    pub fn until(&self, name: &str, wanted: impl Fn(&TenantRow) -> bool) -> TenantRow {
        let row = |reply| first(rows_of(reply, name), name);
        self.until_answered(&Listing::Tenants.first(), row, wanted)
    }

    /// Waits until a process of the tenant waits for memory of its first device.
    #[track_caller]
    pub fn until_one_waits(&self, name: &str) {
        self.until(name, waits);
    }

    /// Waits until each of these tenants has had `more` further turns. Returns all their rows.
    #[track_caller]
    pub fn turns_go_round(&self, names: &[&str], more: u64) -> Vec<ShareRow> {
        let rows = |reply| {
            let rows = shares_in(reply);
            names.iter().map(|name| share_of(&rows, name)).collect()
        };
        let before: Vec<ShareRow> = rows(self.commands().ask(&Listing::Shares.first()));
        let wanted = |now: &Vec<ShareRow>| {
            let mut both = before.iter().zip(now);
            both.all(|(before, now)| now.turns >= before.turns + more)
        };
        self.until_answered(&Listing::Shares.first(), rows, wanted)
    }
}

//! A tenant's charge while its processes race.

use gpushare_protocol::wire::{ControlReply, Listing, Rows};

use crate::daemon::Commands;

impl Commands {
    /// The charge of a tenant's processes, in bytes, over this one connection: a new connection
    /// for each reading takes most of the processors from them. `None` where the sum may never
    /// have been: it is added up from the processes' words, and one of them changed meanwhile.
    #[track_caller]
    pub fn charged(&mut self, name: &str) -> Option<u64> {
        let mut parts = || {
            let ControlReply::Page {
                rows: Rows::Tenants(rows),
                ..
            } = self.ask(&Listing::Tenants.first())
            else {
                panic!("the daemon lists its tenants");
            };
            let row = rows.into_iter().find(|row| row.name == name);
            let processes = row.expect("the tenant exists").processes;
            let parts: Vec<u64> = processes.iter().map(|one| one.charged).collect();
            parts
        };
        let mut last = parts();
        (0..8).find_map(|_| {
            let now = parts();
            let same = last == now;
            last = now;
            same.then(|| last.iter().sum())
        })
    }
}

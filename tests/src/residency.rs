//! A daemon's commands about tenants whose memory moves, and its answers.

use gpushare_protocol::wire::{
    Control, ControlReply, Cursor, Listing, Place, ResidencyRow, Rows, SwapRoom, SwapRow,
    TenantSwaps,
};

use crate::daemon::Daemon;
use crate::waiting::until;

impl Daemon {
    /// Where the memory of a tenant on its only device is.
    #[track_caller]
    #[must_use]
    pub fn residency(&self, name: &str) -> ResidencyRow {
        let page = self.commands().ask(&Control::Page {
            of: Listing::Residency,
            from: Cursor::default(),
        });
        let ControlReply::Page {
            rows: Rows::Residency(rows),
            ..
        } = page
        else {
            panic!("{page:?}");
        };
        let mut rows = rows.into_iter();
        rows.find(|row| row.name == name).expect("a row")
    }

    /// The node's room for memory that is away, and what has moved of a tenant on its only device.
    #[track_caller]
    #[must_use]
    pub fn swaps(&self, name: &str) -> (SwapRoom, TenantSwaps) {
        let page = self.commands().ask(&Control::Page {
            of: Listing::Swaps,
            from: Cursor::default(),
        });
        let ControlReply::Page {
            rows: Rows::Swaps(rows),
            ..
        } = page
        else {
            panic!("{page:?}");
        };
        let (mut room, mut tenant) = (SwapRoom::default(), None);
        for row in rows {
            match row {
                SwapRow::Room(row) => room = row,
                SwapRow::Tenant(row) if row.name == name => tenant = Some(row),
                _ => {}
            }
        }
        (room, tenant.expect("a row"))
    }

    /// Suspends a tenant. Its memory has left the device then. A tenant whose work has not ended
    /// in time on a busy machine, or that was refused host memory, runs on, which is the command's
    /// answer, and is asked again until it is out.
    #[track_caller]
    pub fn suspend(&self, name: &str) {
        if let ControlReply::Error(error) = self.asks_to_leave(name) {
            assert!(error.message.contains("has not left yet"), "{error:?}");
            until("it leaves at last", || {
                self.residency(name).place == Place::Out
            });
        }
    }

    /// The answer to the command that suspends a tenant.
    #[track_caller]
    pub fn asks_to_leave(&self, name: &str) -> ControlReply {
        let tenant = name.to_owned();
        self.commands().ask(&Control::Suspend { tenant })
    }

    /// Resumes a tenant. Its memory is back then.
    #[track_caller]
    pub fn resume(&self, name: &str) {
        let tenant = name.to_owned();
        let reply = self.commands().ask(&Control::Resume { tenant });
        assert_eq!(reply, ControlReply::Done);
    }

    /// The texts of its past events of a kind.
    #[must_use]
    pub fn events(&self, kind: &str) -> Vec<String> {
        let past = self.commands().past();
        let of = past.into_iter().filter(|event| event.kind == kind);
        of.map(|event| event.text).collect()
    }
}

//! A process's gate: its launches, how far ahead they are, and its reports when it must not launch.

use super::client::{Manners, Program};
use super::gpu::Batch;
use super::{MARK, Machine, Mail};
use gpushare_core::lease::Input;
use gpushare_core::{LeaseKind, Nanos};

impl Machine {
    /// Launches as much as it may.
    pub(super) fn launch(&mut self, at: usize) {
        while !self.is_silent(at) && self.clients[at].ready {
            let now = self.now;
            let client = &mut self.clients[at];
            if client.length().is_none() {
                return;
            }
            if !client.is_open() {
                return self.wait_at_gate(at);
            }
            let length = client.length().expect("it works");
            let one = *client
                .next
                .get_or_insert_with(|| length.draw(&mut client.rng));
            let window = match client.lease.kind {
                LeaseKind::Open { window, .. } => window.0,
                _ => 2_000_000,
            };
            let mut kernels = client.batch(one, window).min(client.left);
            while kernels > 1 && client.fits(now, one * kernels) != Ok(true) {
                kernels /= 2;
            }
            let wrong = 900 + client.rng.below(201);
            let estimate = one * kernels * wrong / 1000;
            match client.fits(now, estimate) {
                Ok(true) => self.submit(at, one * kernels, estimate, kernels),
                // Its window is full: it waits for no other tenant.
                Ok(false) => return client.waits_since = None,
                Err(()) => {
                    client.landed = true;
                    self.wait_at_gate(at);
                    return self.report_drained(at);
                }
            }
        }
    }

    fn submit(&mut self, at: usize, length: u64, estimate: u64, kernels: u64) {
        let now = self.now;
        let client = &mut self.clients[at];
        client.next = None;
        if client.flying.is_empty() {
            client.working_since = now;
        }
        client.flying.push_back(estimate);
        client.launched_in_turn = true;
        client.submitted = now;
        if client.left != u64::MAX {
            client.left -= kernels;
        }
        let again = match client.program {
            Program::Deep(_) => true,
            Program::Bursts(..) => client.on,
            Program::Requests(..) => client.left > 0,
            _ => false,
        };
        client.ready = again;
        let waited = client.waits_since.take();
        let (process, epoch, tenant) = (client.process, client.lease.epoch, client.tenant);
        if std::mem::take(&mut client.said_idle) {
            self.send(
                at,
                Input::Reported {
                    process,
                    epoch,
                    report: gpushare_core::Report::Busy,
                },
            );
        }
        if let Some(since) = waited {
            self.meter
                .waits
                .entry(tenant)
                .or_default()
                .push((now - since).0);
        }
        self.meter.marks += MARK;
        let batch = Batch {
            left: length + MARK,
        };
        self.post(Nanos::micros(4), Mail::Arrive(at, batch));
    }

    fn wait_at_gate(&mut self, at: usize) {
        let now = self.now;
        let client = &mut self.clients[at];
        client.waits_since.get_or_insert(now);
        if !std::mem::replace(&mut client.said_wanted, true) {
            let (process, epoch) = (client.process, client.lease.epoch);
            self.send(
                at,
                Input::Reported {
                    process,
                    epoch,
                    report: gpushare_core::Report::Wanted,
                },
            );
        }
    }

    pub(super) fn report_drained(&mut self, at: usize) {
        let client = &mut self.clients[at];
        let closed = client.lease.kind.is_closed() || client.landed;
        let silent = matches!(client.manners, Manners::Mute | Manners::Stopped);
        if closed && client.flying.is_empty() && !client.said_drained && !client.gone && !silent {
            client.said_drained = true;
            let (process, epoch) = (client.process, client.lease.epoch);
            self.send(
                at,
                Input::Reported {
                    process,
                    epoch,
                    report: gpushare_core::Report::Drained,
                },
            );
        }
    }
}

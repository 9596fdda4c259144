//! What processes say of their contexts: when they may make one, and when its memory can be
//! measured.

use gpushare_core::{AskId, AskKey, DeviceId, Event, Nanos, ProcessId, TenantId};
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{Refusal, Reply, Request};

use super::{Client, Node};

/// How long a process may take to report a context as made. After that, the memory that the device
/// shows for it counts anyway.
const OPENING: Nanos = Nanos::secs(10);

impl Node {
    /// A process may now make a context. From now on the device may show memory of a half-made
    /// context.
    pub(super) fn is_opening(&mut self, now: Nanos, process: ProcessId, device_index: usize) {
        if let Some(known) = self.processes.get_mut(process) {
            known.opens(device_index, now);
        }
    }

    /// Whether the memory that the device shows for a process may belong to a half-made context.
    pub(super) fn is_half_made(&self, now: Nanos, process: ProcessId, device_index: usize) -> bool {
        let known = self.processes.get(process);
        let since = known.and_then(|known| known.opening_since(device_index));
        since.is_some_and(|since| now - since < OPENING)
    }

    /// A process asks for a context: its first one on a device, or one beside those that it has, or
    /// has had. False for any other request.
    pub(super) fn asks_for_context(
        &mut self,
        now: Nanos,
        (client, process, id): (Client, ProcessId, u32),
        request: &Request,
    ) -> bool {
        let again = |device, ask| Event::OpenAgain {
            process,
            device,
            ask,
        };
        let asker = (client, process, id);
        let none = (Bytes::ZERO, false);
        match *request {
            Request::Open { device_index } => {
                self.is_opening(now, process, usize::from(device_index));
                self.ask(now, asker, (device_index, none), |device, ask| {
                    Event::Open {
                        process,
                        device,
                        ask,
                    }
                });
            }
            Request::OpenAgain { device_index } => {
                self.ask(now, asker, (device_index, none), again);
            }
            Request::OpenMore {
                device_index,
                patience_ms,
            } => self.ask(now, asker, (device_index, none), |device, ask| {
                Event::OpenMore {
                    process,
                    device,
                    ask,
                    patience: patience_ms.map(Nanos::millis),
                }
            }),
            _ => return false,
        }
        true
    }

    /// What a process reports of its contexts. False for any other request.
    pub(super) fn told_of_contexts(
        &mut self,
        now: Nanos,
        (client, process): (Client, ProcessId),
        request: &Request,
    ) -> bool {
        match *request {
            Request::ContextMade { device_index } => {
                let device_index = usize::from(device_index);
                // Said once for each that was let be made: it costs a look at the device.
                if self.is_open_no_more(process, device_index)
                    && let Some(device) = self.device_of(client.tenant, device_index)
                {
                    self.happened(now, Event::ContextMade { process, device });
                }
            }
            Request::OpenDone { device_index, ask } => {
                self.cancel_ask(now, client.tenant, (process, AskId(u64::from(ask))));
                if let Some(device) = self.device_of(client.tenant, usize::from(device_index)) {
                    let ask = AskId(u64::from(ask));
                    let done = Event::OpenDone {
                        process,
                        device,
                        ask,
                    };
                    self.happened(now, done);
                }
            }
            Request::NoContext { device_index } => {
                let device_index = usize::from(device_index);
                self.is_open_no_more(process, device_index);
                if let Some(device) = self.device_of(client.tenant, device_index) {
                    self.happened(now, Event::NoContext { process, device });
                }
            }
            _ => return false,
        }
        true
    }

    /// A process makes no first context on a device any more. Whether it was let make one.
    fn is_open_no_more(&mut self, process: ProcessId, device_index: usize) -> bool {
        let known = self.processes.get_mut(process);
        known.is_some_and(|known| known.opened(device_index))
    }

    pub(super) fn device_of(&self, tenant: TenantId, device_index: usize) -> Option<DeviceId> {
        let known = self.tenants.get(&tenant)?;
        known.device_ids().get(device_index).copied()
    }

    /// An ask is waited for no more: it is answered if it is open.
    pub(super) fn cancel_ask(&mut self, now: Nanos, tenant: TenantId, key: AskKey) {
        if let Some(known) = self.tenants.get_mut(&tenant) {
            known.tally_mut().given_up(key, now);
        }
        if let Some((to, asked)) = self.asks.take(key) {
            self.reply(to, asked, Reply::Refused(Refusal::Cancelled));
        }
        let (process, ask) = key;
        self.happened(now, Event::Cancel { process, ask });
    }
}

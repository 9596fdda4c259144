//! Further contexts of processes: asked for, made, and ended.

use super::Node;
use gpushare_core::{AskId, AskKey, Bytes, DeviceId, Event, Nanos, ProcessId};

/// How the call goes for which room is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// It makes its context, and returns.
    Made,
    /// It fails, and returns.
    Fails,
    /// It has made its context and does not return yet.
    Lasts,
    /// It never takes anything, and never returns.
    Hangs,
}

impl Node {
    /// A process makes a context beside those that it has.
    pub fn open_more(&mut self, process: ProcessId, device: DeviceId, call: Call) -> AskKey {
        self.open_more_with(process, device, call, None)
    }

    /// The same with so much of its time to wait left.
    pub fn open_more_with(
        &mut self,
        process: ProcessId,
        device: DeviceId,
        call: Call,
        patience: Option<Nanos>,
    ) -> AskKey {
        let ask = (process, AskId(self.fresh()));
        self.note_ask(ask, ask, device, None);
        self.calls.insert(ask, call);
        self.tell(Event::OpenMore {
            process,
            device,
            ask: ask.1,
            patience,
        });
        ask
    }

    /// A call is under way that another daemon had let begin, and that has made its context.
    pub fn open_again(&mut self, process: ProcessId, device: DeviceId) -> AskKey {
        let ask = (process, AskId(self.fresh()));
        self.note_ask(ask, ask, device, None);
        self.calls.insert(ask, Call::Lasts);
        self.tell(Event::OpenAgain {
            process,
            device,
            ask: ask.1,
        });
        ask
    }

    /// The call has returned.
    pub fn returns_from(&mut self, (process, ask): AskKey, device: DeviceId) {
        self.tell(Event::OpenDone {
            process,
            device,
            ask,
        });
    }

    /// A context of a process ends. With the last one all of its memory there does.
    pub fn ends_context(&mut self, process: ProcessId, device: DeviceId) {
        let each = self.devices[&device].context;
        let known = self.processes.get_mut(&process).expect("it lives");
        let left = known.contexts.get(&device).copied().unwrap_or_default() - each;
        if !left.is_zero() {
            known.contexts.insert(device, left);
            return;
        }
        known.contexts.remove(&device);
        known.charged.remove(&device);
        let tenant = known.tenant;
        self.look(tenant, device);
        self.tell(Event::NoContext { process, device });
    }

    /// What the call takes that was let go on, and what is said of it. False: it is none of those.
    pub(super) fn goes_on(&mut self, ask: AskKey, device: DeviceId) -> bool {
        let Some(call) = self.calls.remove(&ask) else {
            return false;
        };
        let (process, number) = ask;
        if matches!(call, Call::Made | Call::Lasts) {
            let each = self.devices[&device].context;
            let known = self.processes.get_mut(&process).expect("it lives");
            let all = known.contexts.entry(device).or_insert(Bytes::ZERO);
            *all += each;
            self.is_on(process, device);
        }
        if matches!(call, Call::Made | Call::Fails) {
            self.reply(Event::OpenDone {
                process,
                device,
                ask: number,
            });
        }
        true
    }
}

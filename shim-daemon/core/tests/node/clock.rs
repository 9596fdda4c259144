//! Time in the node: the next due event, and its effects.

use super::*;

impl Node {
    /// Lets time pass, waking the world whenever it asked for it.
    pub fn pass(&mut self, time: Nanos) {
        let end = self.now + time;
        while self.next_event().is_some_and(|at| at <= end) {
            self.step();
        }
        self.now = end;
        self.advance();
        self.settle_mail();
    }

    /// Lets time pass as a daemon does: every device is looked at four times a second.
    pub fn live(&mut self, time: Nanos) {
        let (end, period) = (self.now + time, Nanos::millis(250));
        while self.now < end {
            self.pass(period.min(end - self.now));
            self.provide_all();
            for device in self.devices.keys().copied().collect::<Vec<_>>() {
                self.sample(device);
            }
        }
    }

    pub(super) fn next_event(&self) -> Option<Nanos> {
        let mail = self.mail.first_key_value().map(|((at, _), _)| *at);
        let timeouts = self
            .world
            .next_timeout()
            .into_iter()
            .chain(self.next_read());
        mail.into_iter().chain(timeouts).min()
    }

    /// Goes to the next time at which something happens.
    pub fn step(&mut self) {
        let Some(at) = self.next_event() else { return };
        self.now = self.now.max(at);
        self.advance();
        self.settle_mail();
        self.serve();
    }

    /// When pages are read next.
    fn next_read(&self) -> Option<Nanos> {
        self.claims.as_ref()?;
        let wanted = self.world.next_sample()?;
        Some(wanted.max(self.read + self.read_every))
    }

    /// Reads the pages of shared devices that are due: they say anything.
    pub(super) fn serve(&mut self) {
        if self.next_read().is_none_or(|at| at > self.now) {
            return;
        }
        self.read = self.now;
        let due = self
            .claims
            .as_ref()
            .map(|_| self.world.due_samples(self.now));
        for (device, processes) in due.into_iter().flatten() {
            let works = processes.into_iter().map(|process| (process, self.claim()));
            let works = works.collect();
            self.tell(Event::Served { device, works });
        }
    }

    fn claim(&mut self) -> Work {
        let now = self.now.0;
        let Some(rng) = &mut self.claims else {
            return Work::default();
        };
        let mut counter = || match rng.below(8) {
            0 => u64::MAX,
            1 => 0,
            _ => rng.below(now + 1),
        };
        Work {
            service: counter(),
            busy: counter(),
            since: Some(Nanos(counter())).filter(|since| !since.0.is_multiple_of(4)),
            guessed: now.is_multiple_of(5),
        }
    }

    /// Steps until nothing is left to happen.
    pub fn drive(&mut self) {
        for _ in 0..100_000 {
            if self.next_event().is_none() {
                return;
            }
            self.step();
        }
        panic!("the world does not come to rest");
    }
}

pub fn gib(count: u64) -> Bytes {
    Bytes::gib(count)
}

pub fn mib(count: u64) -> Bytes {
    Bytes::mib(count)
}

pub fn secs(count: u64) -> Nanos {
    Nanos::secs(count)
}

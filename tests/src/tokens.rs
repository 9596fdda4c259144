//! The token of a tenant that yields, and the test as a process of the tenant.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicU32;

use gpushare_protocol::page::token::Token;

use crate::threads::until_first_thread_waits;
use crate::turns::now;
use crate::{Dealer, clients, until};

/// The slot of the test, as a process of the tenant.
pub const TEST: usize = 7;
/// Longer than any test runs (ns).
const ENDLESS: u64 = 600_000_000_000;

/// The token of the first device.
pub fn token(dealer: &Dealer) -> &Token {
    &dealer.usage().devices[0].token
}

/// Waits until no process wants the token.
#[track_caller]
pub fn is_wanted_no_more(dealer: &Dealer) {
    until("no process wants the token", || {
        !token(dealer).is_wanted(now())
    });
}

/// Waits until the process of this slot has the token.
#[track_caller]
pub fn has_it(dealer: &Dealer, slot: usize) {
    until("it has the token", || {
        token(dealer).holder(now()) == Some(slot)
    });
}

/// The test has the token from now on.
#[track_caller]
pub fn takes_it(dealer: &Dealer) {
    until("the test has the token", || {
        token(dealer).take(TEST, now(), ENDLESS).is_ok()
    });
}

/// A process that sleeps on a word of the usage page until it is woken.
#[derive(Debug)]
pub struct Sleeper(Child);

impl Sleeper {
    /// Starts it, and waits until it sleeps.
    #[track_caller]
    pub fn on(dealer: &Dealer, word: &AtomicU32) -> Self {
        let base = std::ptr::from_ref(dealer.usage()).addr();
        let offset = std::ptr::from_ref(word).addr() - base;
        let page = dealer.usage_descriptor().try_clone_to_owned();
        let child = Command::new(clients::compile("sleeper", &[]))
            .arg(offset.to_string())
            .stdin(Stdio::from(page.expect("a descriptor")))
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        until_first_thread_waits(child.id());
        Self(child)
    }

    /// Whether it was woken.
    #[track_caller]
    pub fn is_woken(&mut self) -> bool {
        let ended = self.0.try_wait().expect("a child");
        ended.is_some_and(|status| {
            assert!(status.success(), "{status}");
            true
        })
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

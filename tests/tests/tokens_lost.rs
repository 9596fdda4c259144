//! While a tenant yields, work of one of its processes may wait for that of another one, which
//! waits for the tenant's token. Both go on, and the first one soon needs no token.

use gpushare_tests::slices::{SLICE, shared};
use gpushare_tests::tokens::{TEST, is_wanted_no_more, takes_it, token};
use gpushare_tests::turns::now;
use gpushare_tests::{Dealer, Gpu, Guest, until};

const LAUNCH: &str = "launch 1 200000";

/// A program with streams, which records an event for another one or waits for it.
fn started(dealer: &Dealer) -> Guest {
    let mut guest = dealer.client("moves").started();
    ["make 1 1", "make 2 1", "make 3 1"]
        .iter()
        .for_each(|line| guest.does(line));
    guest
}

/// The kernel of the first process waits for an event that ends only after a kernel of the second
/// one, which has no token before the first one has lost it.
fn crosses([waits, leads]: &mut [Guest; 2]) {
    for line in ["await 2", "lead 2"] {
        leads.does(line);
    }
    for line in ["follow 1", LAUNCH] {
        waits.does(line);
    }
    for line in [LAUNCH, "wait 1", "write 3", "wait 2"] {
        leads.does(line);
    }
    waits.does("wait 1");
    leads.does("reset");
}

/// Whether a launch of this process waits while the test has the token.
fn needs_it(dealer: &Dealer, guest: &mut Guest) -> bool {
    takes_it(dealer);
    is_wanted_no_more(dealer);
    let asked = now();
    guest.does(&format!("post {LAUNCH}"));
    let mut waits = false;
    until("it goes or waits", || {
        waits = token(dealer).is_wanted(asked);
        waits || guest.ask("posted") == "posted 0"
    });
    let _ = token(dealer).free(TEST, now());
    until("it goes", || guest.ask("posted") == "posted 0");
    guest.does("wait 1");
    waits
}

#[test]
fn a_process_whose_work_waits_for_a_siblings_event_soon_needs_no_token() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    dealer.deal(&shared(1, true, SLICE));
    let mut both = [(); 2].map(|()| started(&dealer));
    let exported = both[1].ask("export");
    both[0].does(&exported.replace("export", "import"));
    assert!(needs_it(&dealer, &mut both[0]), "it has lost none yet");
    // On a slow machine the time may be over.
    until("it needs no token for a while", || {
        (0..4).for_each(|_| crosses(&mut both));
        !needs_it(&dealer, &mut both[0])
    });
    assert!(needs_it(&dealer, &mut both[1]), "no work of it waits");
    both.into_iter()
        .for_each(|guest| _ = guest.finish().silently());
}

//! A small device on which a context takes a page: what the daemon sets aside for contexts that
//! nobody has measured fills it twice over.

use gpushare_tests::{Daemon, Gpu};

#[test]
fn programs_with_small_contexts_do_not_wait_for_each_others_guesses() {
    let gpu = Gpu::new("mem=1GiB,ctx=2MiB");
    let daemon = Daemon::start(&gpu);
    let guests = ["one", "two", "three", "four"].map(|name| {
        let tenant = daemon.tenant(name, &[]);
        let guest = tenant.client("quota", &[]).started();
        (tenant, guest)
    });
    // A guess for a context that no look shows lapses after ten seconds.
    assert_eq!(daemon.events("lapsed"), [] as [String; 0]);
    drop(guests);
}

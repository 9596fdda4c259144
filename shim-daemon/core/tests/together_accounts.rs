//! What tenants of a shared device are billed when their processes come, go, or do nothing.

#![allow(clippy::unwrap_used, reason = "a test: what cannot be had fails it")]
use gpushare_core::{
    Compute, DeviceTime, Input, LeasePolicy, Nanos, Permille, ProcessId, Report, Sharing, TenantId,
    Work,
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

fn joined(device: &mut DeviceTime, now: u64, tenant: u64, process: u64, compute: Compute) {
    let joined = Input::Joined {
        tenant: TenantId(tenant),
        process: ProcessId(process),
        gated: true,
        class: 500,
        compute,
    };
    device.handle(Nanos(now), joined);
}

fn request(percent: u16) -> Compute {
    Compute {
        request: Permille::new(percent * 10),
        limit: None,
    }
}

fn limit(percent: u16) -> Compute {
    Compute {
        request: None,
        limit: Permille::new(percent * 10),
    }
}

fn is_open(device: &DeviceTime, tenant: u64) -> bool {
    let lease = device.lease(TenantId(tenant)).unwrap();
    !lease.kind.is_closed()
}

/// A process with work that has been pending since `since`.
fn works(process: u64, since: u64, service: u64) -> (ProcessId, Work) {
    let work = Work {
        service,
        since: Some(Nanos(since)),
        ..Work::default()
    };
    (ProcessId(process), work)
}

/// Takes the samples that the device asks for up to `until`.
fn samples(
    device: &mut DeviceTime,
    until: u64,
    pages: &mut dyn FnMut(u64) -> Vec<(ProcessId, Work)>,
) {
    while let Some(at) = device.next_sample().filter(|at| at.0 <= until) {
        let pages = pages(at.0);
        device.sampled(at, &pages);
        while device.poll().is_some() {}
        device.check().unwrap();
    }
}

/// A process has completed work of this length and ended: its page is read once more.
fn ends(device: &mut DeviceTime, now: u64, process: u64, service: u64) {
    let work = Work {
        service,
        busy: service,
        ..Work::default()
    };
    ends_with(device, now, process, work);
}

/// The same with these words on the page. Its connection ends before its pidfd tells.
fn ends_with(device: &mut DeviceTime, now: u64, process: u64, work: Work) {
    let process = ProcessId(process);
    device.sampled(Nanos(now), &[(process, work)]);
    let away = true;
    device.handle(Nanos(now), Input::Away { process, away });
    device.sampled(Nanos(now + 1), &[(process, work)]);
    device.handle(Nanos(now + 1), Input::Left { process });
    while device.poll().is_some() {}
    device.check().unwrap();
}

/// For how much of a hundred seconds a program that is started again and again, with one kernel of
/// two seconds each time, has the device under a cap, in thousandths. `guessed`: the kernel is the
/// first of its kind in its process, as each kernel of such a program is.
fn used_by_short_programs(percent: u16, pause: u64, guessed: bool) -> u64 {
    let mut device = DeviceTime::new(LeasePolicy::default());
    let (mut now, mut used, mut process) = (MS, 0, 0);
    while now < 100 * SECOND {
        process += 1;
        joined(&mut device, now, 1, process, limit(percent));
        // Its launch waits until the gate is open.
        let mut at = now;
        samples(&mut device, now, &mut |_| Vec::new());
        while !is_open(&device, 1) {
            at += 2 * MS;
            samples(&mut device, at, &mut |_| vec![]);
        }
        let end = at + 2 * SECOND;
        let (process_id, mut pending) = works(process, at, 0);
        pending.guessed = guessed;
        samples(&mut device, end, &mut |_| vec![(process_id, pending)]);
        let ended = Work {
            service: 2 * SECOND,
            busy: 2 * SECOND,
            guessed,
            ..Work::default()
        };
        ends_with(&mut device, end + 1, process, ended);
        used += 2 * SECOND;
        now = end + pause;
    }
    used * 1000 / now
}

#[test]
fn a_cap_outlives_the_processes_of_its_tenant() {
    for guessed in [false, true] {
        let used = used_by_short_programs(10, 10 * MS, guessed);
        // 12 s of 102: the last one is not repaid yet.
        assert!(used <= 120, "{used} of 1000, guessed: {guessed}");
    }
}

/// For how much of the time of forty kernels a tenant has the device under a cap, in thousandths,
/// whose one process runs such a kernel again and again, and another one 50 us each 30 ms. Each
/// launch waits until the gate is open.
fn used_beside_short_operations(percent: u16, kernel: u64, guessed: bool) -> u64 {
    let mut device = DeviceTime::new(LeasePolicy::default());
    for process in [1, 2] {
        joined(&mut device, MS, 1, process, limit(percent));
    }
    let (mut now, mut used, mut began, mut short) = (MS, 0, None, 0);
    while now < 40 * kernel {
        now = device.next_sample().expect("it has a cap").0;
        if began.is_some_and(|began| now >= began + kernel) {
            (used, began) = (used + kernel, None);
        }
        if is_open(&device, 1) {
            began = began.or(Some(now));
            short = short.max(now / (30 * MS));
        }
        let page = |service, since: Option<u64>| Work {
            service,
            busy: service,
            since: since.map(Nanos),
            guessed,
        };
        let works = [
            (ProcessId(1), page(used, began)),
            (ProcessId(2), page(short * 50_000, None)),
        ];
        device.sampled(Nanos(now), &works);
        while device.poll().is_some() {}
        device.check().unwrap();
    }
    used * 1000 / now
}

#[test]
fn a_cap_counts_a_long_kernel_beside_short_ones_of_its_tenant() {
    for (percent, most) in [(10, 155), (30, 355)] {
        for kernel in [SECOND / 2, 2 * SECOND, 10 * SECOND] {
            for guessed in [false, true] {
                let used = used_beside_short_operations(percent, kernel, guessed);
                println!("{percent} %, {kernel} ns, {guessed}: {used}");
                // The last ones, which are 50, need not be repaid yet.
                assert!(used <= most, "{percent} %, {kernel}, {guessed}: {used}");
            }
        }
    }
}

/// For how many seconds a tenant is closed under a cap of a tenth, after a kernel that took ten
/// seconds beside another tenant, and claims so many.
fn closed_after_ten_seconds_beside(claims: u64) -> u64 {
    let mut device = DeviceTime::new(LeasePolicy::default());
    joined(&mut device, MS, 1, 1, limit(10));
    joined(&mut device, MS, 2, 2, Compute::default());
    let end = 10 * SECOND;
    samples(&mut device, end, &mut |at| {
        vec![works(1, MS, 0), works(2, MS, at / 2)]
    });
    let done = Work {
        service: claims * SECOND,
        busy: end,
        ..Work::default()
    };
    let mut seconds = 0;
    while seconds == 0 || !is_open(&device, 1) {
        seconds += 1;
        let until = end + seconds * SECOND;
        samples(&mut device, until, &mut |at| {
            vec![(ProcessId(1), done), works(2, MS, at - end / 2)]
        });
    }
    seconds
}

#[test]
fn a_kernel_of_seconds_beside_others_is_paid_for_in_full() {
    let closed = closed_after_ten_seconds_beside(5);
    assert!((36..=52).contains(&closed), "{closed} s");
}

/// The opposite: it claims more than others left it.
#[test]
fn of_a_kernel_beside_others_only_what_they_left_is_paid() {
    let closed = closed_after_ten_seconds_beside(60);
    assert!((36..=65).contains(&closed), "{closed} s");
}

/// Beside a tenant that has half of the device, one with a cap of a tenth works for a minute, and
/// whenever its gate is closed a launch waits there. Then it launches new kinds for a minute: each
/// of 60 a millisecond is assumed to take 1.25 ms. For how much of that minute its gate is open, in
/// thousandths; without the wait at the gate if it `rests`.
fn open_for_new_kinds(rests: bool) -> u64 {
    let mut device = DeviceTime::new(LeasePolicy::default());
    joined(&mut device, MS, 1, 1, limit(10));
    joined(&mut device, MS, 2, 2, Compute::default());
    let (mut now, mut service, mut open) = (MS, 0, 0);
    let (mut drained, mut since) = (0, now);
    while now < 120 * SECOND {
        let is_open = is_open(&device, 1);
        let next = device.next_sample().expect("two work").0.max(now + 1);
        let is_new = now >= 60 * SECOND;
        if is_open {
            since = now;
            let span = next - now;
            open += if is_new { span } else { 0 };
            service += if is_new { 75 * span } else { span / 2 };
        }
        now = next;
        let waits = is_open || !(rests && now < 60 * SECOND);
        let page = Work {
            service,
            busy: service,
            since: waits.then_some(Nanos(since)),
            guessed: is_new,
        };
        device.sampled(Nanos(now), &[(ProcessId(1), page), works(2, MS, now / 2)]);
        while device.poll().is_some() {}
        let lease = device.lease(TenantId(1)).unwrap();
        if lease.kind.is_closed() && drained != lease.epoch {
            drained = lease.epoch;
            let report = Input::Reported {
                process: ProcessId(1),
                epoch: drained,
                report: Report::Drained,
            };
            device.handle(Nanos(now), report);
        }
        device.check().unwrap();
    }
    open * 1000 / (60 * SECOND)
}

#[test]
fn a_launch_that_waited_at_the_gate_of_a_cap_had_nothing_of_the_device() {
    let [waited, rested] = [false, true].map(open_for_new_kinds);
    println!("open for new kinds: {waited} of 1000 after waits, {rested} after rests");
    assert!(rested >= 50, "{rested} of 1000");
    assert!(waited * 10 >= rested * 9, "{waited} and {rested} of 1000");
}

/// Two tenants of which each has half of the device, after a second, and what the first has.
fn halves() -> (DeviceTime, impl Fn(&DeviceTime, u64) -> u64) {
    let mut device = DeviceTime::new(LeasePolicy::default());
    for tenant in [1, 2] {
        joined(&mut device, MS, tenant, tenant, Compute::default());
    }
    samples(&mut device, SECOND, &mut halves_of);
    let held = |device: &DeviceTime, now| {
        let share = device.share(TenantId(1), Nanos(now));
        share.unwrap().held.0 / MS
    };
    (device, held)
}

fn halves_of(at: u64) -> Vec<(ProcessId, Work)> {
    vec![works(1, MS, at / 2), works(2, MS, at / 2)]
}

/// The connection of the first tenant's process ends, or is back.
fn away(device: &mut DeviceTime, now: u64, away: bool) {
    let process = ProcessId(1);
    device.handle(Nanos(now), Input::Away { process, away });
}

/// Its neighbour worked alone meanwhile, and nothing was looked at.
#[test]
fn what_a_process_did_while_it_was_away_is_not_billed_on_its_return() {
    let (mut device, held) = halves();
    let before = held(&device, SECOND);
    away(&mut device, SECOND + 1, true);
    let back = 11 * SECOND;
    samples(&mut device, back, &mut halves_of);
    assert_eq!(device.next_sample(), None, "one is there");
    away(&mut device, back, false);
    samples(&mut device, back + 20 * MS, &mut halves_of);
    let billed = held(&device, back + 20 * MS) - before;
    assert!((6..=12).contains(&billed), "{billed} ms");
}

/// The opposite: a new connection at each look would make its work free.
#[test]
fn a_process_that_was_away_between_two_looks_is_billed_for_that_time() {
    let (mut device, held) = halves();
    let before = held(&device, SECOND);
    let mut now = SECOND;
    while now < 2 * SECOND {
        away(&mut device, now + 1, true);
        away(&mut device, now + 2, false);
        now = device.next_sample().expect("both are there").0;
        device.sampled(Nanos(now), &halves_of(now));
        while device.poll().is_some() {}
    }
    let billed = held(&device, now) - before;
    assert!((490..=510).contains(&billed), "{billed} ms");
}

/// For how many seconds a tenant is closed under a cap of a tenth after its work was last looked
/// at: each 2 ms for ten seconds, or once after them if `late`.
fn closed_after_ten_seconds(late: bool) -> u64 {
    let mut device = DeviceTime::new(LeasePolicy::default());
    joined(&mut device, MS, 1, 1, limit(10));
    let mut page = |_| vec![works(1, MS, 0)];
    samples(&mut device, 2 * MS, &mut page);
    let end = MS + 10 * SECOND;
    let until = if late { 2 * MS } else { end };
    samples(&mut device, until, &mut page);
    let done = Work {
        service: 10 * SECOND,
        busy: 10 * SECOND,
        ..Work::default()
    };
    device.sampled(Nanos(end + MS), &[(ProcessId(1), done)]);
    let mut seconds = 0;
    while !is_open(&device, 1) {
        seconds += 1;
        let until = end + seconds * SECOND;
        samples(&mut device, until, &mut |_| vec![(ProcessId(1), done)]);
    }
    seconds
}

#[test]
fn a_kernel_of_ten_seconds_under_a_cap_is_paid_for_in_full() {
    let closed = closed_after_ten_seconds(false);
    assert!((85..=100).contains(&closed), "{closed} s");
}

/// The daemon did not run, and the process may have kept its cap by itself.
#[test]
fn time_that_was_not_looked_at_is_paid_for_up_to_a_second() {
    let closed = closed_after_ten_seconds(true);
    assert!(closed <= 10, "{closed} s");
}

#[test]
fn a_tenant_that_owes_nothing_any_more_is_not_closed() {
    let mut device = DeviceTime::new(LeasePolicy::default());
    joined(&mut device, MS, 1, 1, limit(50));
    samples(&mut device, SECOND, &mut |_| vec![works(1, MS, 0)]);
    ends(&mut device, SECOND + MS, 1, SECOND);
    joined(&mut device, SECOND + 2 * MS, 1, 2, limit(50));
    assert!(!is_open(&device, 1), "it owes half of a second");
    ends(&mut device, SECOND + 3 * MS, 2, 0);
    joined(&mut device, SECOND + 4 * MS, 1, 3, limit(50));
    assert!(!is_open(&device, 1), "and still does");
    ends(&mut device, SECOND + 5 * MS, 3, 0);
    joined(&mut device, 3 * SECOND, 1, 4, limit(50));
    assert!(is_open(&device, 1));
}

#[test]
fn a_debt_of_turns_outlives_the_processes_too() {
    let policy = LeasePolicy {
        sharing: Sharing::Turns,
        ..LeasePolicy::default()
    };
    let mut device = DeviceTime::new(policy);
    let mut now = SECOND;
    let begins = |device: &mut DeviceTime, now, process| {
        joined(device, now, 1, process, limit(50));
        let epoch = device.lease(TenantId(1)).unwrap().epoch;
        let process = ProcessId(process);
        let report = Report::Wanted;
        let wanted = Input::Reported {
            process,
            epoch,
            report,
        };
        device.handle(Nanos(now), wanted);
    };
    begins(&mut device, now, 1);
    assert!(is_open(&device, 1));
    while is_open(&device, 1) && now < 2 * SECOND {
        now += MS;
        device.advance(Nanos(now));
        while device.poll().is_some() {}
    }
    let left = |process| Input::Left {
        process: ProcessId(process),
    };
    device.handle(Nanos(now), left(1));
    begins(&mut device, now + 1, 2);
    assert!(!is_open(&device, 1), "its cap is used up");
    device.handle(Nanos(now + 2), left(2));
    begins(&mut device, now + SECOND, 3);
    assert!(is_open(&device, 1), "time has repaid it");
}

#[test]
fn a_daemon_that_starts_bills_nothing_of_the_past() {
    let mut device = DeviceTime::new(LeasePolicy::default());
    let start = 3600 * SECOND;
    joined(&mut device, start, 1, 1, request(70));
    joined(&mut device, start, 2, 2, limit(10));
    // Both worked for an hour beside each other under the daemon before. The first one works now.
    let mut page = |at| vec![works(1, 0, at), works(2, at, start)];
    let mut closed = 0;
    for at in 1..100 {
        samples(&mut device, start + at * 10 * MS, &mut page);
        closed += u64::from(!is_open(&device, 1)) + u64::from(!is_open(&device, 2));
    }
    assert_eq!(closed, 0);
}

#[test]
fn a_process_that_does_nothing_leaves_its_tenant_measured() {
    for guessed in [false, true] {
        let mut device = DeviceTime::new(LeasePolicy::default());
        for tenant in [1, 2] {
            joined(&mut device, MS, tenant, tenant, request(50));
            joined(&mut device, MS, tenant, tenant + 10, request(50));
        }
        // Seven tenths and three tenths of the device.
        let mut page = |at: u64| {
            let mut pages = vec![works(1, MS, at / 10 * 7), works(2, MS, at / 10 * 3)];
            for helper in [11, 12] {
                let page = Work {
                    guessed,
                    ..Work::default()
                };
                pages.push((ProcessId(helper), page));
            }
            pages
        };
        samples(&mut device, SECOND, &mut page);
        let had = |tenant| {
            device
                .share(TenantId(tenant), Nanos(SECOND))
                .unwrap()
                .held
                .0
                / MS
        };
        let (first, second) = (had(1), had(2));
        assert!((650..=710).contains(&first), "{first} ms, {guessed}");
        assert!((270..=310).contains(&second), "{second} ms, {guessed}");
    }
}

//! Processes of one tenant race for its memory. By softgpu's counters they never exceed the limit,
//! and no request that fits is refused.

use gpushare_tests::{Gpu, Guest, MIB};
use softgpu::inspect::Observer;
use std::thread;

const PROCESSES: u64 = 8;
const LIMIT: u64 = 256 * MIB;

struct Tenant {
    observer: Observer,
    guests: Vec<Guest>,
}

impl Tenant {
    fn start() -> Self {
        let gpu = Gpu::new("mem=4GiB");
        let observer = Observer::open(&gpu.spec().parse().expect("a valid SPEC"))
            .expect("softgpu's state opens");
        let flags = ["--mem-limit", "256MiB", "--name", gpu.name()];
        let mut guests: Vec<Guest> = (0..PROCESSES)
            .map(|_| Guest::client(&gpu, &flags, "race"))
            .collect();
        for guest in &mut guests {
            assert_eq!(guest.ask("init"), "init 0");
        }
        Self { observer, guests }
    }

    /// Sends every guest its line without waiting, then returns their answers.
    fn all(&mut self, line: impl Fn(usize) -> String) -> Vec<String> {
        thread::scope(|scope| {
            let asked: Vec<_> = self
                .guests
                .iter_mut()
                .enumerate()
                .map(|(index, guest)| {
                    let line = line(index);
                    scope.spawn(move || guest.ask(&line))
                })
                .collect();
            asked
                .into_iter()
                .map(|answer| answer.join().expect("the guest answers"))
                .collect()
        })
    }

    /// The highest and the current total requested of the device.
    fn requested(&self) -> (u64, u64) {
        let device = &self
            .observer
            .snapshot()
            .expect("softgpu's state is there")
            .devices[0];
        (device.requested_peak, device.requested_now)
    }

    fn finish(self) {
        self.guests
            .into_iter()
            .for_each(|guest| drop(guest.finish().silently()));
    }
}

#[test]
fn an_allocation_that_fits_is_never_refused() {
    let mut tenant = Tenant::start();
    let answers = tenant.all(|index| format!("fit {} 2000 {}", LIMIT / PROCESSES, index + 1));
    assert!(
        answers.iter().all(|answer| answer == "fit 0"),
        "{answers:?}"
    );
    assert!(tenant.requested().0 <= LIMIT, "{:?}", tenant.requested());
    tenant.all(|_| "drop".to_owned());
    assert_eq!(tenant.requested().1, 0);
    tenant.finish();
}

#[test]
fn greedy_processes_never_pass_the_limit_together() {
    let mut tenant = Tenant::start();
    let answers = tenant.all(|index| format!("greedy {} 2000 {}", 24 * MIB, index + 1));
    assert!(
        answers.iter().all(|answer| answer != "greedy 0"),
        "every process reaches the limit: {answers:?}"
    );
    let (peak, _) = tenant.requested();
    assert!(
        peak <= LIMIT,
        "{peak} bytes at the peak under a limit of {LIMIT}"
    );
    assert!(
        peak > LIMIT / 2,
        "{peak} bytes at the peak: the limit was never near"
    );
    tenant.all(|_| "drop".to_owned());
    // Wherever the race left credit, one process can have all of it.
    assert_eq!(tenant.guests[0].ask(&format!("huge {LIMIT} 1")), "huge 1");
    assert_eq!(
        tenant.guests[1].ask(&format!("huge {} 1", LIMIT + 1)),
        "huge 0"
    );
    tenant.finish();
}

#[test]
fn refused_huge_requests_do_not_affect_other_processes() {
    let mut tenant = Tenant::start();
    // Every process holds some memory at all times, so that the whole limit never fits.
    tenant.all(|index| format!("fit {} 10 {}", LIMIT / PROCESSES, index + 1));
    let answers = tenant.all(|index| match index {
        0 => format!("huge {LIMIT} 2000"),
        1 => format!("huge {} 2000", 1_u64 << 40),
        _ => format!("fit {} 2000 {}", LIMIT / PROCESSES, index + 1),
    });
    assert_eq!(answers[..2], ["huge 0", "huge 0"]);
    assert!(
        answers[2..].iter().all(|answer| answer == "fit 0"),
        "{answers:?}"
    );
    assert!(tenant.requested().0 <= LIMIT);
    tenant.finish();
}

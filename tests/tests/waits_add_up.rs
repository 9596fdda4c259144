//! The waits of one call do not add up. In each request the process passes on the remaining time,
//! and it repeats no refused request. The test plays the daemon and sees the requests.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gpushare_protocol::wire::{Ask, Refusal, Reply, Request};
use gpushare_tests::{Dealer, GIB, Gpu, Guest, MIB, assert_measured};
use nix::fcntl::{FcntlArg, fcntl};

const GRANTED: &str = "alloc 0";
const REFUSED: &str = "alloc 2";
/// The wait time in the tenant's limits, in milliseconds.
const WAIT: u64 = 60_000;
const GUARANTEE: u64 = 90_000;
/// How long the daemon lets a request wait here: at least this much must be missing from the
/// remaining time.
const PAUSE: Duration = Duration::from_millis(300);
/// A wait time that is over when the daemon answers, in milliseconds: more than a busy machine
/// takes to ask.
const SHORT: u64 = 2_000;

fn yes() -> Option<Reply> {
    Some(Reply::Granted { grant: 8 * GIB })
}

fn no() -> Option<Reply> {
    let waited_ms = 300;
    Some(Reply::Refused(Refusal::TimedOut { waited_ms }))
}

/// A guest with a context, whose tenant is granted 1 GiB, and its requests from then on. `answer`
/// gets the number of the request.
fn asking(
    dealer: &Dealer,
    guest: Guest,
    answer: impl Fn(usize, &Request) -> Option<Reply> + Send + 'static,
) -> (Guest, Receiver<Request>) {
    let guest = guest.started();
    let (says, said): (Sender<Request>, _) = channel();
    let header = &dealer.page().header;
    header.wait_ms.store(WAIT, Ordering::Relaxed);
    header.guarantee_ms.store(GUARANTEE, Ordering::Relaxed);
    dealer.page().devices[0].grant.store(GIB, Ordering::Relaxed);
    let count = Arc::new(Mutex::new(0));
    dealer.bank(move |asked| {
        let mut count = count.lock().unwrap();
        *count += 1;
        let _ = says.send(asked.clone());
        answer(*count, asked)
    });
    (guest, said)
}

fn patience(asked: &Request) -> u64 {
    let (Request::Ask(ask) | Request::DriverRefused(ask)) = asked else {
        panic!("{asked:?}")
    };
    let Ask { patience_ms, .. } = ask;
    patience_ms.unwrap_or_else(|| panic!("{asked:?} lacks the remaining time"))
}

fn millis(pause: Duration) -> u64 {
    u64::try_from(pause.as_millis()).unwrap()
}

#[test]
fn the_wait_of_one_request_shortens_the_next_ones_time() {
    let gpu = Gpu::new("mem=16GiB");
    let dealer = Dealer::start(&gpu);
    // The first call asks whether the request is valid. Then the driver has no memory although all
    // is granted, twice; then it has memory.
    let program = gpushare_tests::clients::compile("quota", &[]);
    let mut command = dealer.command(&program);
    command
        .env("LD_LIBRARY_PATH", gpushare_tests::gpu::links())
        .env(
            "SOFTGPU_FAIL",
            "cuMemAlloc_v2:2:CUDA_ERROR_OUT_OF_MEMORY,cuMemAlloc_v2:3:CUDA_ERROR_OUT_OF_MEMORY",
        );
    let (raised, grant_is_raised): (Sender<()>, Receiver<()>) = channel();
    let (mut guest, said) = asking(&dealer, Guest::start(command), move |_, asked| {
        if patience(asked) == 0 {
            // Refused at once, while the process looks for memory that it can free itself.
            return Some(Reply::Refused(Refusal::NoMemory));
        }
        if matches!(asked, Request::Ask(_)) {
            grant_is_raised.recv().unwrap();
        }
        std::thread::sleep(PAUSE);
        yes()
    });
    guest.send(&format!("alloc {}", 2 * GIB));
    let second = said.iter().find(|asked| patience(asked) > 0).unwrap();
    let device = &dealer.page().devices[0];
    device.grant.store(8 * GIB, Ordering::SeqCst);
    raised.send(()).unwrap();
    assert!((1..=WAIT).contains(&patience(&second)), "{second:?}");
    assert_eq!(guest.line(), GRANTED);
    let later: Vec<Request> = said.try_iter().collect();
    assert_eq!(later.len(), 2, "the driver refused twice: {later:?}");
    let mut before = patience(&second);
    for refused in &later {
        assert!(matches!(refused, Request::DriverRefused(_)), "{refused:?}");
        let left = patience(refused);
        assert!(left + millis(PAUSE) <= before, "{left} of {before}");
        before = left;
    }
}

#[test]
fn a_request_refused_after_a_wait_is_not_repeated() {
    let gpu = Gpu::new("mem=16GiB");
    let dealer = Dealer::start(&gpu);
    // All of it is within the request, for which the call waits at once.
    let request = &dealer.usage().devices[0].request;
    request.store(8 * GIB, Ordering::Relaxed);
    let (mut guest, said) = asking(&dealer, dealer.client("quota"), |_, _| {
        std::thread::sleep(PAUSE);
        no()
    });
    assert_eq!(guest.ask(&format!("alloc {}", 2 * GIB)), REFUSED);
    let asked: Vec<Request> = said.try_iter().collect();
    assert_eq!(asked.len(), 1, "{asked:?}");
    let left = patience(&asked[0]);
    assert!(left > WAIT && left <= GUARANTEE, "{asked:?}");
    assert_eq!(guest.ask(&format!("alloc {MIB}")), GRANTED);
    // The next call has all of its time again.
    assert_eq!(guest.ask(&format!("alloc {}", 2 * GIB)), REFUSED);
    let asked: Vec<Request> = said.try_iter().collect();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert!(patience(&asked[0]) > WAIT, "{asked:?}");
}

#[test]
fn a_call_waits_only_in_its_last_request() {
    let gpu = Gpu::new("mem=16GiB");
    let dealer = Dealer::start(&gpu);
    let (mut guest, said) = asking(&dealer, dealer.client("quota"), |_, _| {
        Some(Reply::Refused(Refusal::NoMemory))
    });
    assert_eq!(guest.ask(&format!("alloc {}", 2 * GIB)), REFUSED);
    let asked: Vec<Request> = said.try_iter().collect();
    let waits = asked.iter().filter(|asked| patience(asked) > 0).count();
    assert_eq!(waits, 1, "{asked:?}");
    assert!(patience(asked.last().unwrap()) > 0, "{asked:?}");
}

/// The times that were left to the requests that could wait, since this was last asked.
fn left(said: &Receiver<Request>) -> Vec<u64> {
    let all = said.try_iter().map(|asked| patience(&asked));
    all.filter(|left| *left > 0).collect()
}

/// A guest none of whose requests is granted, each after it has waited.
fn refused_after_waits(dealer: &Dealer) -> (Guest, Receiver<Request>) {
    asking(dealer, dealer.client("quota"), |_, asked| {
        match patience(asked) {
            0 => {}
            // All of it, and a moment.
            left if left <= SHORT => std::thread::sleep(Duration::from_millis(left + 50)),
            _ => std::thread::sleep(PAUSE),
        }
        no()
    })
}

#[test]
fn ever_smaller_requests_of_a_thread_share_one_wait() {
    let gpu = Gpu::new("mem=16GiB");
    let dealer = Dealer::start(&gpu);
    let (mut guest, said) = refused_after_waits(&dealer);
    let mut before = WAIT + millis(PAUSE);
    for mib in [6000, 5400, 4860, 4374] {
        assert_eq!(guest.ask(&format!("alloc {}", mib * MIB)), REFUSED);
        let left = left(&said);
        assert_eq!(left.len(), 1, "{left:?}");
        assert!(left[0] + millis(PAUSE) <= before, "{left:?} of {before}");
        before = left[0];
    }
    // What is granted ends it.
    assert_eq!(guest.ask(&format!("alloc {MIB}")), GRANTED);
    assert_eq!(guest.ask(&format!("alloc {}", 3000 * MIB)), REFUSED);
    let anew = left(&said);
    assert!(anew.len() == 1 && anew[0] > before, "{anew:?} of {before}");
}

#[test]
fn a_smaller_request_after_a_free_has_a_wait_of_its_own() {
    let gpu = Gpu::new("mem=16GiB");
    let dealer = Dealer::start(&gpu);
    let (mut guest, said) = refused_after_waits(&dealer);
    assert_eq!(guest.ask(&format!("alloc {MIB}")), GRANTED);
    dealer.page().header.wait_ms.store(SHORT, Ordering::Relaxed);
    assert_eq!(guest.ask(&format!("alloc {}", 6000 * MIB)), REFUSED);
    assert_eq!(left(&said).len(), 1);
    assert_eq!(guest.ask(&format!("alloc {}", 5400 * MIB)), REFUSED);
    assert_eq!(left(&said), [] as [u64; 0], "the time is over");
    assert_eq!(guest.ask("free 1"), "free 0");
    assert_eq!(guest.ask(&format!("alloc {}", 4860 * MIB)), REFUSED);
    assert_eq!(left(&said).len(), 1);
}

#[test]
fn a_request_as_large_as_the_last_one_waits_for_itself() {
    let gpu = Gpu::new("mem=16GiB");
    let dealer = Dealer::start(&gpu);
    let (mut guest, said) = refused_after_waits(&dealer);
    dealer.page().header.wait_ms.store(SHORT, Ordering::Relaxed);
    for _ in 0..2 {
        assert_eq!(guest.ask(&format!("alloc {}", 6000 * MIB)), REFUSED);
        assert_eq!(left(&said).len(), 1);
    }
}

#[test]
fn the_next_daemon_gets_the_remaining_wait_time() {
    let gpu = Gpu::new("mem=16GiB");
    let mut dealer = Dealer::start(&gpu);
    let asked_before = AtomicBool::new(false);
    let (mut guest, said) = asking(
        &dealer,
        dealer.client("quota"),
        move |_, asked| match asked {
            Request::Ask(ask) if ask.patience_ms == Some(0) => {
                Some(Reply::Refused(Refusal::NoMemory))
            }
            // The daemon dies before it answers.
            Request::Ask(_) if asked_before.swap(true, Ordering::Relaxed) => no(),
            Request::Ask(_) => None,
            _ => yes(),
        },
    );
    guest.send(&format!("alloc {}", 2 * GIB));
    let first = said.iter().find(|asked| patience(asked) > 0);
    let first = patience(&first.unwrap());
    std::thread::sleep(PAUSE);
    dealer.come_back();
    // The process asks for its context again, too.
    let again = said.iter().find(|asked| matches!(asked, Request::Ask(_)));
    let again = patience(&again.unwrap());
    assert!(again + millis(PAUSE) <= first, "{again} of {first}");
    assert_eq!(guest.line(), REFUSED);
}

#[test]
fn a_held_lock_costs_a_call_its_wait_time_once() {
    let gpu = Gpu::new("mem=16GiB");
    let dealer = Dealer::start(&gpu);
    let (mut guest, _said) = asking(&dealer, dealer.client("quota"), |_, _| no());
    dealer.page().header.wait_ms.store(100, Ordering::Relaxed);
    let path = format!("/proc/self/fd/{}", dealer.usage_descriptor().as_raw_fd());
    let mut options = std::fs::OpenOptions::new();
    let held = options.read(true).write(true).open(path).unwrap();
    let lock = nix::libc::flock {
        l_type: i16::try_from(nix::libc::F_WRLCK).unwrap(),
        l_whence: 0,
        l_start: 0,
        l_len: 1,
        l_pid: 0,
    };
    fcntl(held.as_fd(), FcntlArg::F_OFD_SETLK(&lock)).unwrap();
    let began = Instant::now();
    assert_eq!(guest.ask(&format!("alloc {}", 2 * GIB)), REFUSED);
    let took = began.elapsed();
    // It was 10 s for each attempt to take the lock.
    assert_measured!(took < Duration::from_secs(8), "{took:?}");
    drop(held);
    assert_eq!(guest.ask(&format!("alloc {MIB}")), GRANTED);
}

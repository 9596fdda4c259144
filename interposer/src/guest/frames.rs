//! Which of this library's calls the calling thread is in, and whether a call that was seen to
//! begin is still there.
//!
//! A call need not return: a signal handler or a callback may jump out of it, and a fiber may never
//! be resumed. So no state that a thread keeps is trusted for ever. While a thread waits, or is in
//! the driver's own call, it counts as outside our calls ([`away`]): it may leave from there, and
//! calls it makes there are ordinary calls. In our own code, which takes microseconds, a call marks
//! its place by the address of a [`Frame`] on its stack; whether it is still there is then checked
//! on the stack. Why: ADR 35.
//!
//! # Safety
//! Only the calling thread uses its own variable, which lives as long as the thread. `unsafe` also
//! changes the calling thread's signal mask.
#![allow(
    unsafe_code,
    reason = "a thread-local of the initial-exec model, and system calls about the stack"
)]

use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use crate::guest::background::Uncancelled;
use crate::guest::sys::{self, Scope};
use crate::guest::thread_word::thread_word;

thread_word!(gpushare_inside: u64);

#[inline(always)]
fn get() -> u64 {
    // SAFETY: the calling thread's own variable.
    unsafe { cell().read_volatile() }
}

#[inline(always)]
fn set(frame: u64) {
    // SAFETY: the calling thread's own variable.
    unsafe { cell().write_volatile(frame) };
}

/// In no call of ours.
const OUTSIDE: u64 = 0;
/// A thread of this library's own.
const OURS: u64 = u64::MAX;
/// The content of a frame while its call is active.
const HERE: u32 = 0x6770_7368;

/// A call's place on the stack: it must not move from when its address is taken until the call
/// ends.
#[derive(Debug)]
pub(crate) struct Frame(AtomicU32);

impl Frame {
    /// Of a call that is there.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(HERE))
    }

    /// Where it is.
    #[inline(always)]
    pub(crate) fn address(&self) -> u64 {
        ptr::from_ref(&self.0).expose_provenance() as u64
    }
}

/// The place of a call that holds something: others can see whether it is still there.
#[derive(Debug)]
pub(crate) struct Place(Frame);

impl Place {
    /// Of a call that is there, until this is dropped.
    pub(crate) fn new() -> Self {
        Self(Frame::new())
    }

    /// Where it is.
    pub(crate) fn address(&self) -> u64 {
        self.0.address()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Relaxed);
    }
}

/// This thread is in one of our calls; leaves it when dropped.
#[derive(Debug)]
pub(crate) struct Inside<'a>(&'a Frame);

impl Drop for Inside<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        set(OUTSIDE);
        self.0.0.store(0, Ordering::Relaxed);
    }
}

/// Enters a call, unless the thread is in another one already: then this one comes from a signal
/// handler, or the thread is ours.
#[inline(always)]
pub(crate) fn enter(frame: &Frame) -> Option<Inside<'_>> {
    let outer = get();
    if outer != OUTSIDE && !is_gone(outer, frame.address()) {
        return None;
    }
    set(frame.address());
    Some(Inside(frame))
}

/// The frame of the call that this thread is in; 0 in none, and in a thread of ours.
pub(crate) fn current() -> u64 {
    match get() {
        OURS => 0,
        frame => frame,
    }
}

/// This thread is ours: the driver's calls in it are not hooked.
pub(crate) fn work_unseen() {
    set(OURS);
}

/// A forked child's only thread is in no call of its own yet. One store.
pub(crate) fn forget() {
    set(OUTSIDE);
}

/// While this lives, the thread is outside our calls: it waits, or is in the driver. It holds
/// nothing meanwhile that would block other threads if it never returned.
#[derive(Debug)]
pub(crate) struct Away(u64);

impl Away {
    /// From now on.
    #[inline(always)]
    pub(crate) fn begin() -> Self {
        let frame = get();
        if frame != OURS {
            set(OUTSIDE);
        }
        Self(frame)
    }
}

impl Drop for Away {
    #[inline(always)]
    fn drop(&mut self) {
        set(self.0);
    }
}

/// Waits or calls the driver by `body`; see [`Away`].
pub(crate) fn away<R>(body: impl FnOnce() -> R) -> R {
    let _away = Away::begin();
    body()
}

/// Sleeps. That is no cancellation point, as a wait of the driver is none.
pub(crate) fn sleep(time: Duration) {
    let _uncancelled = Uncancelled::begin();
    away(|| std::thread::sleep(time));
}

/// Sleeps while `word` says `seen`, at most `longest`. May return early for no reason.
pub(crate) fn sleep_on(word: &AtomicU32, seen: u32, longest: Duration) {
    away(|| sys::futex_wait(word, seen, longest, Scope::Private));
}

/// Whether the frame that was at `frame` in this thread's stack is certainly gone, seen from the
/// one at `here`: calls that are still there lie above those they make, and hold what frames hold.
#[cold]
#[inline(never)]
pub(crate) fn is_gone(frame: u64, here: u64) -> bool {
    frame != OURS && ((here >= frame && !is_on_alternate_stack()) || !is_there(frame))
}

/// Whether there may be a frame at this address, of whatever thread. If the system does not let us
/// look, there may.
pub(crate) fn is_there(frame: u64) -> bool {
    usize::try_from(frame).is_ok_and(|frame| sys::says(frame, HERE) != Some(false))
}

fn is_on_alternate_stack() -> bool {
    let mut stack = MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: an out parameter that outlives the call; zeros are a valid value of it.
    unsafe {
        libc::sigaltstack(ptr::null(), stack.as_mut_ptr());
        stack.assume_init().ss_flags & libc::SS_ONSTACK != 0
    }
}

/// While this lives no signal handler runs in this thread, so none jumps out. Used where the thread
/// holds something that others need, and the cost of a system call does not matter.
pub(crate) struct Undisturbed(libc::sigset_t);

impl Undisturbed {
    /// From now on.
    pub(crate) fn begin() -> Self {
        let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: both sets outlive the calls; zeros are an empty set. Faults of our own code must
        // still end the program.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for fault in [
                libc::SIGSEGV,
                libc::SIGBUS,
                libc::SIGILL,
                libc::SIGFPE,
                libc::SIGTRAP,
            ] {
                libc::sigdelset(all.as_mut_ptr(), fault);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl core::fmt::Debug for Undisturbed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Undisturbed")
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        // SAFETY: restores the earlier mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_inside_another_one_is_told_until_that_one_waits() {
        // As on a stack, inner frames lie lower.
        let [inner, outer] = &[Frame::new(), Frame::new()];
        let inside = enter(outer).expect("in none");
        assert!(enter(inner).is_none(), "in the outer one");
        away(|| drop(enter(inner).expect("the outer one waits")));
        assert!(get() == outer.address(), "and is there again");
        drop(inside);
        assert_eq!(get(), OUTSIDE);
        assert!(!is_there(outer.address()));
    }

    #[test]
    fn a_frame_that_was_left_is_gone_from_where_it_was_and_above() {
        let frame = Frame::new();
        let address = frame.address();
        assert!(!is_gone(address, address - 64), "seen from below");
        assert!(is_gone(address, address));
        assert!(is_gone(address, address + 64));
        frame.0.store(7, Ordering::Relaxed);
        assert!(is_gone(address, address - 64), "something else lies there");
        assert!(is_gone(4096, 64), "nothing is mapped there");
    }

    /// From now on this thread may not read memory by `process_vm_readv`, as in a container.
    fn forbid_reads() {
        let say = |code: u32, jt, jf, k| libc::sock_filter {
            code: u16::try_from(code).unwrap(),
            jt,
            jf,
            k,
        };
        let number = u32::try_from(libc::SYS_process_vm_readv).unwrap();
        let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
        let mut filter = [
            say(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            say(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number),
            say(libc::BPF_RET | libc::BPF_K, 0, 0, refuse),
            say(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog {
            len: u16::try_from(filter.len()).unwrap(),
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: of this thread alone; the filter outlives the calls.
        let answers = unsafe {
            [
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
                libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const program,
                ),
            ]
        };
        assert_eq!(answers, [0, 0]);
    }

    #[test]
    fn a_frame_that_was_overwritten_is_gone_where_memory_may_not_be_read() {
        std::thread::spawn(|| {
            forbid_reads();
            let frame = Frame::new();
            assert!(is_there(frame.address()));
            frame.0.store(7, Ordering::Relaxed);
            assert!(!is_there(frame.address()));
            assert!(!is_there(4096), "nothing is mapped there");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_of_ours_is_never_outside() {
        std::thread::spawn(|| {
            work_unseen();
            let frame = Frame::new();
            assert!(enter(&frame).is_none());
            away(|| assert!(enter(&frame).is_none()));
        })
        .join()
        .unwrap();
    }
}

use super::*;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use crate::foreign::Lanes;

fn again(descriptor: BorrowedFd<'_>) -> OwnedFd {
    descriptor.try_clone_to_owned().unwrap()
}

/// A page that a process presents.
fn adopt(file: impl Into<OwnedFd>) -> Result<UsagePage, PagesError> {
    UsagePage::adopt(Foreign::new(file.into(), &Lanes::default().own()))
}

#[test]
fn tries_for_a_lock_end_once_they_take_too_long() {
    for (each, times) in [(Duration::ZERO, 8), (LONGEST / 2, 2), (LONGEST, 1)] {
        let count = std::cell::Cell::new(0);
        let takes = || {
            count.set(count.get() + 1);
            false
        };
        assert!(!tried(8, takes, || each * count.get()));
        assert_eq!(count.get(), times, "{each:?}");
    }
    assert!(tried(1, || true, || LONGEST));
}

#[test]
fn a_usage_page_comes_back_with_what_was_written() {
    let page = UsagePage::create().unwrap();
    page.view().found(7, 9);
    page.view().header.set_text("limits");
    let adopted = adopt(again(page.descriptor())).unwrap();
    assert_eq!(adopted.view().header.text(), "limits");
}

#[test]
fn the_lock_of_a_page_is_had_when_nobody_else_holds_it() {
    let page = UsagePage::create().unwrap();
    let mut inner = None;
    let outer = page.locked_within(1, || inner = Some(page.locked_within(2, || ())));
    assert_eq!((outer, inner), (true, Some(false)));
    assert!(page.locked_within(1, || ()));
}

#[test]
fn a_page_on_which_its_process_has_a_lease_is_not_waited_for() {
    /// `F_SETSIG` of the kernel's `asm-generic/fcntl.h`.
    const SETSIG: libc::c_int = 10;
    let first = UsagePage::create().unwrap();
    first.view().found(7, 9);
    // Of a file that is open once, as a process can have it.
    let path = format!("/proc/self/fd/{}", first.0.file.as_raw_fd());
    let again = std::fs::File::options().read(true).write(true).open(path);
    let page = adopt(again.unwrap()).unwrap();
    drop(first);
    let lease = |how, what: libc::c_int| {
        // SAFETY: no pointers.
        let done = unsafe { libc::fcntl(page.0.file.as_raw_fd(), how, what) };
        assert_eq!(Errno::result(done), Ok(0));
    };
    // By default the signal would end this process.
    lease(SETSIG, libc::SIGURG);
    lease(libc::F_SETLEASE, libc::F_WRLCK);
    // An open that waits gets it: after 45 s the kernel takes the lease away.
    assert!(!page.locked_within(1, || ()));
    lease(libc::F_SETLEASE, libc::F_UNLCK);
    assert!(page.locked_within(1, || ()));
}

#[test]
fn a_blank_or_unsealed_or_short_descriptor_is_no_usage_page() {
    let blank = UsagePage::create().unwrap();
    assert!(matches!(
        adopt(again(blank.descriptor())),
        Err(PagesError::Content(PageError::NotAPage))
    ));
    let unsealed = memfd(c"x").unwrap();
    assert!(matches!(adopt(unsealed), Err(PagesError::Unsealed)));
    let plain = OwnedFd::from(tempfile::tempfile().unwrap());
    assert!(matches!(adopt(plain), Err(PagesError::Unsealed)));
    let control = ControlPages::create(1).unwrap();
    assert!(matches!(
        adopt(again(control.descriptor())),
        Err(PagesError::Size { .. })
    ));
}

/// A memory file of so many bytes with a usage page's header, of a later minor.
fn of_a_later_minor(file: &OwnedFd, bytes: i64) -> Foreign {
    let page = UsagePage::create().unwrap();
    page.view().found(7, 9);
    page.view().header.version.fetch_add(1, Ordering::Relaxed);
    let mut head = [0; 4096];
    let from = std::fs::File::from(again(page.descriptor()));
    from.read_exact_at(&mut head, 0).unwrap();
    ftruncate(file, bytes).unwrap();
    let to = std::fs::File::from(again(file.as_fd()));
    to.write_all_at(&head, 0).unwrap();
    fcntl(file, FcntlArg::F_ADD_SEALS(size_seals())).unwrap();
    Foreign::new(again(file.as_fd()), &Lanes::default().own())
}

#[test]
fn a_page_of_a_later_minor_is_taken_and_one_of_another_length_is_not() {
    let own = i64::try_from(UsagePage::BYTES.get()).unwrap();
    let file = memfd(c"x").unwrap();
    let page = UsagePage::adopt(of_a_later_minor(&file, own)).unwrap();
    assert!(page.is(&file));
    for bytes in [own - 4096, own + 4096] {
        let file = memfd(c"x").unwrap();
        let refused = UsagePage::adopt(of_a_later_minor(&file, bytes));
        assert!(matches!(refused, Err(PagesError::Size { .. })), "{bytes}");
    }
}

#[test]
fn a_page_that_cannot_be_mapped_to_write_is_closed_on_its_lane() {
    let lane = Lanes::default().own();
    let page = UsagePage::create().unwrap();
    page.view().found(7, 9);
    // As its process can have it beside the one that it was given.
    let path = format!("/proc/self/fd/{}", page.0.file.as_raw_fd());
    let readable = OwnedFd::from(std::fs::File::open(path).unwrap());
    let number = readable.as_raw_fd();
    let open = || std::fs::read_link(format!("/proc/self/fd/{number}")).is_ok();
    let go = lane.stands();
    let refused = UsagePage::adopt(Foreign::new(readable, &lane));
    assert!(matches!(refused, Err(PagesError::System(_, Errno::EACCES))));
    assert!(open());
    drop(go);
    let (done, is_done) = std::sync::mpsc::channel();
    lane.run(move || done.send(()).unwrap());
    is_done.recv().unwrap();
    assert!(!open());
}

/// Their mappings have another size than what is asked for.
#[test]
fn a_memory_file_of_huge_pages_is_no_usage_page() {
    let flags = libc::MFD_ALLOW_SEALING | libc::MFD_HUGETLB;
    // SAFETY: a name that lasts.
    let file = unsafe { libc::memfd_create(c"x".as_ptr(), flags) };
    let file = Errno::result(file).expect("a kernel with huge pages");
    // SAFETY: the kernel made this descriptor for us.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    ftruncate(&file, 2 << 20).unwrap();
    fcntl(&file, FcntlArg::F_ADD_SEALS(size_seals())).unwrap();
    assert!(matches!(adopt(file), Err(PagesError::Unsealed)));
}

#[test]
fn a_read_only_mapping_can_wait_for_a_change_and_is_woken_by_it() {
    let control = ControlPages::create(5).unwrap();
    let length = size(CONTROL_BYTES);
    let (access, shared) = (ProtFlags::PROT_READ, MapFlags::MAP_SHARED);
    // SAFETY: a new read-only mapping of a sealed page.
    let seen = unsafe { mmap(None, length, access, shared, control.descriptor(), 0) }.unwrap();
    // SAFETY: as long as a control page, never unmapped.
    let seen = unsafe { ControlPage::from_mapping(seen.cast()) };
    let waits = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let before = seen.header.changes.load(Ordering::Acquire);
            waits.wait();
            while seen.header.changes.load(Ordering::Acquire) == before {
                let word = seen.header.changes.as_ptr();
                let forever = std::ptr::null::<libc::timespec>();
                // SAFETY: the word stays mapped; the wait ends when it is woken or holds
                // another value.
                unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, before, forever) };
            }
            seen.devices[1].grant.load(Ordering::Relaxed)
        });
        waits.wait();
        control.view().devices[1].grant.store(7, Ordering::Relaxed);
        assert!(control.announce().is_none());
        assert_eq!(waiter.join().unwrap(), 7);
    });
}

/// Waits until the page changes. `tells` its thread's number first.
fn waits(control: &ControlPages, tells: &std::sync::mpsc::Sender<i32>) {
    let changes = &control.view().header.changes;
    let before = changes.load(Ordering::Acquire);
    tells.send(nix::unistd::gettid().as_raw()).unwrap();
    while changes.load(Ordering::Acquire) == before {
        let (word, forever) = (changes.as_ptr(), std::ptr::null::<libc::timespec>());
        // SAFETY: the word stays mapped; the wait ends when it is woken or holds another value.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, before, forever) };
    }
}

/// Whether the thread sleeps at the page, as the kernel shows its system call.
fn sleeps(control: &ControlPages, thread: i32) -> bool {
    let word = format!("{:#x}", control.view().header.changes.as_ptr() as usize);
    let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall"));
    call.is_ok_and(|call| call.split(' ').nth(1) == Some(&word))
}

#[test]
fn an_announcement_wakes_some_itself_and_the_rest_are_woken_after_it() {
    let control = ControlPages::create(5).unwrap();
    let (tells, threads) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..7)
            .map(|_| scope.spawn(|| waits(&control, &tells)))
            .collect();
        let threads: Vec<i32> = threads.iter().take(7).collect();
        let asleep = || threads.iter().filter(|id| sleeps(&control, **id)).count();
        while asleep() < 7 {
            std::thread::yield_now();
        }
        let rest = control.announce_to(2);
        let rest = rest.expect("two of seven were woken");
        assert!(control.announce_to(2).is_none(), "they are to be woken");
        while asleep() > 3 {
            std::thread::yield_now();
        }
        rest.wake();
        waiters.into_iter().for_each(|one| one.join().unwrap());
        assert!(control.announce_to(2).is_none(), "nobody waits");
    });
}

#[test]
fn nobody_can_resize_a_page_or_map_the_control_page_writable() {
    let control = ControlPages::create(5).unwrap();
    assert_eq!(ftruncate(control.descriptor(), 0), Err(Errno::EPERM));
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let length = size(CONTROL_BYTES);
    // SAFETY: a new mapping that is not used, if the call succeeds at all.
    let writable = unsafe {
        mmap(
            None,
            length,
            access,
            MapFlags::MAP_SHARED,
            control.descriptor(),
            0,
        )
    };
    assert_eq!(writable.map(|_| ()), Err(Errno::EPERM));
    control.view().devices[2].grant.store(11, Ordering::Relaxed);
    // SAFETY: a new read-only mapping of a sealed page.
    let seen = unsafe {
        mmap(
            None,
            length,
            ProtFlags::PROT_READ,
            MapFlags::MAP_SHARED,
            control.descriptor(),
            0,
        )
    }
    .unwrap();
    // SAFETY: as long as a control page, never unmapped.
    let seen = unsafe { ControlPage::from_mapping(seen.cast()) };
    assert_eq!(seen.check(), Ok(()));
    assert_eq!(seen.devices[2].grant.load(Ordering::Relaxed), 11);
}

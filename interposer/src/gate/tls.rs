//! The calling thread's record, one load away.
//!
//! A library's thread-locals are found by a call of the dynamic linker's, unless it asks for them
//! to lie at a fixed distance from the thread pointer. That is given to libraries that a program
//! starts with, as a preloaded one is, and to later ones while the C library has room left; these
//! eight bytes ask for it. The compiler offers no such choice, so the variable is declared and read
//! in assembly. It has no destructor: it is there in signal handlers, and after other destructors
//! ran.
//!
//! # Safety
//! The assembly declares eight aligned bytes of zeros for each thread, and computes their address
//! in the calling thread. Only that thread uses them, as long as the thread runs.
#![allow(unsafe_code, reason = "a thread-local of the initial-exec model")]

use core::ptr;

use crate::gate::word::Record;

core::arch::global_asm!(
    ".pushsection .tbss.gpushare_record,\"awT\",@nobits",
    ".balign 8",
    ".globl gpushare_gate_record",
    ".hidden gpushare_gate_record",
    ".type gpushare_gate_record,@object",
    ".size gpushare_gate_record,8",
    "gpushare_gate_record:",
    ".zero 8",
    ".popsection",
);

/// Where the calling thread keeps the address of its record.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn cell() -> *mut *const Record {
    let offset: usize;
    let base: usize;
    // SAFETY: reads the variable's distance from the thread pointer, and the thread pointer, which
    // the first word it points to repeats.
    unsafe {
        core::arch::asm!(
            "mov {offset}, qword ptr [rip + gpushare_gate_record@GOTTPOFF]",
            "mov {base}, qword ptr fs:[0]",
            offset = out(reg) offset,
            base = out(reg) base,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    ptr::with_exposed_provenance_mut(base.wrapping_add(offset))
}

/// Where the calling thread keeps the address of its record.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn cell() -> *mut *const Record {
    let offset: usize;
    let base: usize;
    // SAFETY: reads the variable's distance from the thread pointer, and the thread pointer.
    unsafe {
        core::arch::asm!(
            "adrp {offset}, :gottprel:gpushare_gate_record",
            "ldr {offset}, [{offset}, :gottprel_lo12:gpushare_gate_record]",
            "mrs {base}, tpidr_el0",
            offset = out(reg) offset,
            base = out(reg) base,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    ptr::with_exposed_provenance_mut(base.wrapping_add(offset))
}

/// The record, null before the thread's first launch.
#[inline(always)]
pub(crate) fn get() -> *const Record {
    // SAFETY: the calling thread's own variable.
    unsafe { cell().read_volatile() }
}

/// From now on this one.
pub(crate) fn set(record: *const Record) {
    // SAFETY: the calling thread's own variable.
    unsafe { cell().write_volatile(record) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_own_and_begins_with_none() {
        let mine: *const Record = ptr::without_provenance(64);
        set(mine);
        let other = std::thread::spawn(|| {
            let before = get().addr();
            set(ptr::without_provenance(128));
            (before, get().addr())
        });
        assert_eq!(other.join().unwrap(), (0, 128));
        assert_eq!(get(), mine);
        set(ptr::null());
    }
}

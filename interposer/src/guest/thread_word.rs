//! A word for each thread, or a few, one load away.
//!
//! The dynamic linker finds a library's thread-locals by a call, unless the library asks for them
//! to lie at a fixed distance from the thread pointer. That place is given to libraries that a
//! program starts with, as a preloaded one is, and to later ones while the C library has room left.
//! The compiler offers no such choice, so the variable is declared and read in assembly. It has no
//! destructor: signal handlers have it, and code that runs after other destructors.

/// Declares a thread-local of eight aligned bytes of zeros, or of so many, and `cell()`, its
/// address in the calling thread. Only that thread may use the address, and only while it runs.
macro_rules! thread_word {
    ($symbol:ident: $type:ty) => {
        $crate::guest::thread_word::thread_word!($symbol: $type, 8);
    };
    ($symbol:ident: $type:ty, $bytes:literal) => {
        const _: () = assert!(size_of::<$type>() <= $bytes && align_of::<$type>() <= 8);
        core::arch::global_asm!(
            concat!(".pushsection .tbss.", stringify!($symbol), ",\"awT\",@nobits"),
            ".balign 8",
            concat!(".globl ", stringify!($symbol)),
            concat!(".hidden ", stringify!($symbol)),
            concat!(".type ", stringify!($symbol), ",@object"),
            concat!(".size ", stringify!($symbol), ",", stringify!($bytes)),
            concat!(stringify!($symbol), ":"),
            concat!(".zero ", stringify!($bytes)),
            ".popsection",
        );

        /// The calling thread's own.
        #[inline(always)]
        fn cell() -> *mut $type {
            let offset: usize;
            let base: usize;
            // SAFETY: reads the variable's distance from the thread pointer, and the thread
            // pointer, which on x86-64 the first word that it points to repeats.
            unsafe {
                #[cfg(target_arch = "x86_64")]
                core::arch::asm!(
                    concat!("mov {offset}, qword ptr [rip + ", stringify!($symbol), "@GOTTPOFF]"),
                    "mov {base}, qword ptr fs:[0]",
                    offset = out(reg) offset,
                    base = out(reg) base,
                    options(pure, readonly, nostack, preserves_flags),
                );
                #[cfg(target_arch = "aarch64")]
                core::arch::asm!(
                    concat!("adrp {offset}, :gottprel:", stringify!($symbol)),
                    concat!("ldr {offset}, [{offset}, :gottprel_lo12:", stringify!($symbol), "]"),
                    "mrs {base}, tpidr_el0",
                    offset = out(reg) offset,
                    base = out(reg) base,
                    options(pure, readonly, nostack, preserves_flags),
                );
            }
            core::ptr::with_exposed_provenance_mut(base.wrapping_add(offset))
        }
    };
}
pub(crate) use thread_word;

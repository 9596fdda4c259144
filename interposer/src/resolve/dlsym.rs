//! The exported `dlsym` and `dlvsym`: assembly thunks.
//!
//! glibc decides what `RTLD_NEXT` and `RTLD_DEFAULT` mean by looking at the return address of the
//! call. A plain wrapper would put itself in the caller's place: a library that wraps a function
//! and asks for the next one would get itself back. So this function asks
//! [`lookup::classify`](crate::resolve::lookup::classify) what to do, puts every argument back
//! where it was, and *jumps* to the real `dlsym`, which then sees the true caller. Only when the
//! answer is ours does it return by itself.
//!
//! # Safety
//! The thunks keep the C calling convention: they save the arguments and the return address around
//! one ordinary call at an aligned stack, and leave by a jump with the stack as it was
//! found. Neither function has vector arguments, so none are saved. Programs that find an exported
//! name get a function of the C library's type and contract.
#![allow(
    unsafe_code,
    reason = "a jump that keeps the caller's return address cannot be written in Rust"
)]

use core::arch::naked_asm;
use core::ffi::{c_char, c_void};

/// `dlsym` as programs see it.
///
/// # Safety
/// As the C function: `name` points to a string, `handle` is a live handle or one of the special
/// ones.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[cfg_attr(test, allow(dead_code, reason = "tests export nothing"))]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov rdx, [rsp + 24]",
        "call {classify}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "mov rax, rdx",
        "ret",
        ".cfi_endproc",
        classify = sym crate::resolve::lookup::classify,
    )
}

/// `dlsym` as programs see it.
///
/// # Safety
/// As the C function: `name` points to a string, `handle` is a live handle or one of the special
/// ones.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[cfg_attr(test, allow(dead_code, reason = "tests export nothing"))]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "hint #34", // bti c, a no-op where it is not known
        "stp x29, x30, [sp, #-32]!",
        ".cfi_adjust_cfa_offset 32",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "mov x2, x30",
        "bl {classify}",
        "mov x16, x0",
        "mov x17, x1",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        ".cfi_adjust_cfa_offset -32",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "mov x0, x17",
        "ret",
        ".cfi_endproc",
        classify = sym crate::resolve::lookup::classify,
    )
}

/// `dlvsym` as programs see it: of another name than `dlsym` it is the C library's.
///
/// # Safety
/// As the C function: as [`dlsym`], and `version` points to a string.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[cfg_attr(test, allow(dead_code, reason = "tests export nothing"))]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "mov rcx, [rsp + 24]",
        "call {classify}",
        "mov rcx, rdx",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "mov rax, rcx",
        "ret",
        ".cfi_endproc",
        classify = sym crate::resolve::lookup::classify_versioned,
    )
}

/// `dlvsym` as programs see it: of another name than `dlsym` it is the C library's.
///
/// # Safety
/// As the C function: as [`dlsym`], and `version` points to a string.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[cfg_attr(test, allow(dead_code, reason = "tests export nothing"))]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "hint #34", // bti c, a no-op where it is not known
        "stp x29, x30, [sp, #-48]!",
        ".cfi_adjust_cfa_offset 48",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "str x2, [sp, #32]",
        "mov x3, x30",
        "bl {classify}",
        "mov x16, x0",
        "mov x17, x1",
        "ldp x0, x1, [sp, #16]",
        "ldr x2, [sp, #32]",
        "ldp x29, x30, [sp], #48",
        ".cfi_adjust_cfa_offset -48",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "mov x0, x17",
        "ret",
        ".cfi_endproc",
        classify = sym crate::resolve::lookup::classify_versioned,
    )
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "gpushare's dlsym is written for x86_64 and aarch64 only: add the thunks for this architecture to dlsym.rs"
);

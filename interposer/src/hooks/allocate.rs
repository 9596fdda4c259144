//! The steps of every allocation's hook: book, ask the driver, enter the address or roll back.

use gpushare_cuda_abi::cuda::CUresult;

use super::early::{self, Call};
use super::pool;
use crate::account::{self, Charge, Deadline};
use crate::driver::contexts::{self, Here};
use crate::driver::device::DeviceKey;
use crate::driver::stream_ref::StreamRef;
use crate::gate::seal;
use crate::holdings::reclaim;
use crate::holdings::table::{self, Kind, Record};
use crate::residency::{memory, slabs};

/// Charges `bytes` to the current context's device and asks the driver, `by` the program's call.
/// `answer` is called with the charge after success and says what became of it.
///
/// Without a current context the driver is called directly: it returns that error. `refusal` gives
/// the call's result if the memory does not fit.
#[inline]
pub(crate) fn booked(
    bytes: u64,
    by: Call,
    refusal: impl Fn(DeviceKey) -> CUresult,
    ask: impl Fn() -> CUresult,
    answer: impl FnOnce(Here, Charge) -> CUresult,
) -> CUresult {
    let Some(here) = contexts::here() else {
        return ask();
    };
    let call = Deadline::new();
    let charge = match reclaim::reserve(here.device, bytes, by, &call, || refusal(here.device)) {
        Ok(charge) => charge,
        Err(answer) => return answer,
    };
    match reclaim::insist(here.device, bytes, by, &call, ask) {
        CUresult::SUCCESS => answer(here, charge),
        // The charge is dropped, and so undone.
        failed => failed,
    }
}

/// As [`booked`] for memory with an address: `bytes` is its size, `address` is read after success.
#[inline]
pub(crate) fn pointer(
    kind: Kind,
    bytes: u64,
    by: Call,
    refusal: impl Fn() -> CUresult,
    ask: impl Fn() -> CUresult,
    address: impl FnOnce() -> Option<u64>,
) -> CUresult {
    booked(
        bytes,
        by,
        |_| refusal(),
        ask,
        |here, charge| {
            if let Some(address) = address() {
                table::insert(
                    address,
                    Record::new(here.device, here.context, kind, charge.keep()),
                );
            }
            CUresult::SUCCESS
        },
    )
}

/// Frees the allocation at `address`: the driver first, then the credit.
#[inline]
pub(crate) fn free(address: u64, ask: impl FnOnce() -> CUresult) -> CUresult {
    if let Some(answer) = small_freed(address) {
        return answer;
    }
    let Some(record) = table::take(address) else {
        return pool::free_unrecorded(address, ask);
    };
    let answer = if record.kind() == Kind::Movable {
        memory::free(record.device(), address, record.units())
    } else {
        let answer = ask();
        if answer.is_success() {
            account::release(record.device(), record.units());
        }
        answer
    };
    if answer.is_success() {
        early::freed();
    } else {
        table::put_back(address, record);
    }
    answer
}

/// Frees a small allocation that can move; `None`: there is none at this address. No table but its
/// slab's has it, and it is not charged by itself.
#[inline]
pub(crate) fn small_freed(address: u64) -> Option<CUresult> {
    if !seal::may_move() {
        return None;
    }
    let answer = slabs::free(address)?;
    if answer.is_success() {
        early::freed();
    }
    Some(answer)
}

/// The same in the order of a stream, without a wait for work.
pub(crate) fn small_freed_in(address: u64, stream: StreamRef) -> Option<CUresult> {
    if !seal::may_move() {
        return None;
    }
    let answer = slabs::free_in(address, stream)?;
    if answer.is_success() {
        early::freed();
    }
    Some(answer)
}

//! State spaces: which memory an address is in, and access to it.

use super::thread::{LOCAL, PARAM, SHARED, Thread};
use super::{Env, Fault, TrapKind};
use crate::code::{Change, Place};
use crate::math::Mode;
use crate::math::float::{Binary, Form};
use crate::math::int::{self, Compare};
use crate::ty::{Ty, low};

/// A place in memory that is not the device's.
#[derive(Debug, Clone, Copy)]
enum Where {
    Machine(u64),
    Shared(u64),
    Local(u64),
    Param(u64),
}

/// The memory that an address of this place is in.
fn locate(place: Place, address: u64) -> Where {
    match place {
        Place::Global => Where::Machine(address),
        // Addresses of these spaces may have 32 bits.
        Place::Shared => Where::Shared(address),
        Place::Local => Where::Local(address),
        Place::Param => Where::Param(address),
        Place::Generic => {
            let inside = address & (SHARED - 1);
            match address & !(SHARED - 1) {
                SHARED => Where::Shared(inside),
                LOCAL => Where::Local(inside),
                PARAM => Where::Param(inside),
                _ => Where::Machine(address),
            }
        }
    }
}

/// The generic address of an address of a place.
pub(super) fn generic(place: Place, address: u64) -> u64 {
    address.wrapping_add(base(place))
}

/// The address of a place at a generic address.
pub(super) fn inside(place: Place, address: u64) -> u64 {
    address.wrapping_sub(base(place))
}

/// Whether a generic address is in a place.
pub(super) fn is_in(place: Place, address: u64) -> bool {
    matches!(
        (place, locate(Place::Generic, address)),
        (Place::Global | Place::Generic, Where::Machine(_))
            | (Place::Shared, Where::Shared(_))
            | (Place::Local, Where::Local(_))
            | (Place::Param, Where::Param(_))
    )
}

fn base(place: Place) -> u64 {
    match place {
        Place::Shared => SHARED,
        Place::Local => LOCAL,
        Place::Param => PARAM,
        Place::Global | Place::Generic => 0,
    }
}

fn aligned(address: u64, bytes: u32, is_global: bool) -> Result<(), TrapKind> {
    if address.is_multiple_of(u64::from(bytes)) {
        Ok(())
    } else if is_global {
        Err(TrapKind::Global(Fault::Misaligned, address))
    } else {
        Err(TrapKind::Inside(Fault::Misaligned, address))
    }
}

/// `bytes` of a block's or a thread's own memory.
fn slot(memory: &mut [u8], at: u64, bytes: u32) -> Result<&mut [u8], TrapKind> {
    let illegal = TrapKind::Inside(Fault::Illegal, at);
    let (Ok(from), Ok(size)) = (usize::try_from(at), usize::try_from(bytes)) else {
        return Err(illegal);
    };
    let end = from
        .checked_add(size)
        .ok_or(TrapKind::Inside(Fault::Illegal, at))?;
    memory.get_mut(from..end).ok_or(illegal)
}

fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn put(into: &mut [u8], value: u64) {
    into.copy_from_slice(&value.to_le_bytes()[..into.len()]);
}

impl Thread {
    /// Memory of the block or the thread; `None` for device memory.
    fn own<'m>(&'m mut self, at: Where, env: &'m mut Env<'_>) -> Option<(&'m mut [u8], u64)> {
        match at {
            Where::Machine(_) => None,
            Where::Shared(at) => Some((&mut *env.shared, at)),
            Where::Local(at) => Some((&mut self.local, at)),
            Where::Param(at) => Some((&mut self.params, at)),
        }
    }

    /// Checks that `total` bytes are aligned: an access to a vector is aligned as a whole.
    pub(super) fn check(place: Place, address: u64, total: u32) -> Result<(), TrapKind> {
        match locate(place, address) {
            Where::Machine(at) => aligned(at, total, true),
            // A parameter may be aligned less than a vector of it.
            Where::Param(_) => Ok(()),
            Where::Shared(at) | Where::Local(at) => aligned(at, total, false),
        }
    }

    /// Reads a number.
    pub(super) fn load(
        &mut self,
        place: Place,
        address: u64,
        bytes: u32,
        env: &mut Env<'_>,
    ) -> Result<u64, TrapKind> {
        let at = locate(place, address);
        if let Where::Machine(at) = at {
            return env
                .machine
                .load(at, bytes)
                .map_err(|fault| TrapKind::Global(fault, at));
        }
        match self.own(at, env) {
            Some((memory, at)) => Ok(number(slot(memory, at, bytes)?)),
            None => Ok(0),
        }
    }

    /// Writes a number.
    pub(super) fn store(
        &mut self,
        place: Place,
        address: u64,
        bytes: u32,
        value: u64,
        env: &mut Env<'_>,
    ) -> Result<(), TrapKind> {
        let at = locate(place, address);
        if let Where::Machine(at) = at {
            return env
                .machine
                .store(at, bytes, value)
                .map_err(|fault| TrapKind::Global(fault, at));
        }
        if let Some((memory, at)) = self.own(at, env) {
            put(slot(memory, at, bytes)?, value);
        }
        Ok(())
    }

    /// Changes a number in one step; returns the earlier one.
    pub(super) fn change(
        &mut self,
        of: Change,
        (place, address): (Place, u64),
        ty: Ty,
        operands: (u64, u64),
        env: &mut Env<'_>,
    ) -> Result<u64, TrapKind> {
        let bytes = ty.bytes();
        Self::check(place, address, bytes)?;
        let at = locate(place, address);
        if let Where::Machine(at) = at {
            let mut change = |old| changed(of, ty, old, operands);
            return env
                .machine
                .update(at, bytes, &mut change)
                .map_err(|fault| TrapKind::Global(fault, at));
        }
        let Some((memory, at)) = self.own(at, env) else {
            return Ok(0);
        };
        let slot = slot(memory, at, bytes)?;
        let old = number(slot);
        put(slot, changed(of, ty, old, operands));
        Ok(old)
    }
}

/// The number after a change.
pub(super) fn changed(of: Change, ty: Ty, old: u64, (b, c): (u64, u64)) -> u64 {
    let b = low(b, ty.bits());
    match of {
        Change::Add => added(ty, old, b),
        Change::Inc => {
            if old >= b {
                0
            } else {
                old + 1
            }
        }
        Change::Dec => {
            if old == 0 || old > b {
                b
            } else {
                old - 1
            }
        }
        Change::Min => {
            if int::compare(Compare::Lt, ty, b, old) {
                b
            } else {
                old
            }
        }
        Change::Max => {
            if int::compare(Compare::Gt, ty, b, old) {
                b
            } else {
                old
            }
        }
        Change::And => old & b,
        Change::Or => old | b,
        Change::Xor => old ^ b,
        Change::Exch => b,
        Change::Cas => {
            if old == b {
                low(c, ty.bits())
            } else {
                old
            }
        }
    }
}

fn added(ty: Ty, old: u64, b: u64) -> u64 {
    let form = |ty| Form {
        ty,
        mode: Mode::Nearest,
        ftz: false,
        sat: false,
    };
    if let Some(half) = ty.half() {
        let part = |at: u32| form(half).binary(Binary::Add, low(old >> at, 16), low(b >> at, 16));
        return part(0) | part(16) << 16;
    }
    if ty.is_float() {
        form(ty).binary(Binary::Add, old, b)
    } else {
        low(old.wrapping_add(b), ty.bits())
    }
}

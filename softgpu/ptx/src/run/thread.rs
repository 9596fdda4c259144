//! One thread: its registers, its memory, and where it is.

use super::Env;
use crate::code::{Dst, Meeting, Special, Src, Tally, Test};
use crate::ty::{Ty, low, signed};

/// Where generic addresses of shared, local and parameter memory and of functions begin. Addresses
/// of device and host memory have at most 49 bits.
pub(super) const SHARED: u64 = 1 << 56;
pub(super) const LOCAL: u64 = 2 << 56;
pub(super) const PARAM: u64 = 3 << 56;
pub(super) const FUNCTION: u64 = 4 << 56;

/// The state of a thread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum State {
    Ready,
    /// At a barrier: its number, how many threads it waits for, what it returns and where, and
    /// whether the thread only tells that it was there.
    Barrier {
        id: u32,
        count: Option<u32>,
        tally: Tally,
        vote: bool,
        d: Dst,
        arrives: bool,
    },
    /// At a meeting of its warp.
    Meets(At),
    /// At a look at the active threads.
    Looks(Dst),
    Ended,
}

/// A thread's part in a meeting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct At {
    pub(super) of: Meeting,
    pub(super) ty: Ty,
    pub(super) d: Dst,
    pub(super) p: Dst,
    pub(super) a: u64,
    pub(super) b: u32,
    pub(super) c: u32,
    pub(super) test: bool,
    pub(super) mask: u32,
}

/// Where a caller continues.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Frame {
    pub(super) function: usize,
    pub(super) pc: usize,
    pub(super) registers: usize,
    pub(super) local: usize,
    pub(super) params: usize,
}

/// A thread.
#[derive(Debug, Default)]
pub(super) struct Thread {
    pub(super) number: u32,
    pub(super) state: Option<State>,
    pub(super) here: Frame,
    pub(super) callers: Vec<Frame>,
    pub(super) registers: Vec<u64>,
    pub(super) local: Vec<u8>,
    pub(super) params: Vec<u8>,
    pub(super) carry: bool,
}

fn wide(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

impl Thread {
    /// Begins the kernel as the thread of this number.
    pub(super) fn begin(&mut self, number: u32, env: &Env<'_>) {
        let kernel = &env.functions[env.entry];
        self.number = number;
        self.state = Some(State::Ready);
        self.here = Frame {
            function: env.entry,
            ..Frame::default()
        };
        self.callers.clear();
        self.registers.clear();
        self.registers.resize(wide(kernel.registers), 0);
        self.local.clear();
        self.local.resize(wide(kernel.local_bytes), 0);
        self.params.clear();
        self.params.extend_from_slice(&env.launch.params);
        self.params
            .resize(wide(kernel.param_bytes).max(env.launch.params.len()), 0);
        self.carry = false;
    }

    pub(super) fn state(&self) -> State {
        self.state.unwrap_or(State::Ended)
    }

    /// Its place in the block.
    pub(super) fn place(&self, block: [u32; 3]) -> [u32; 3] {
        [
            self.number % block[0],
            self.number / block[0] % block[1],
            self.number / (block[0] * block[1]),
        ]
    }

    /// The value of an operand.
    #[inline]
    pub(super) fn get(&self, src: Src, env: &mut Env<'_>) -> u64 {
        let offset = |base: usize, offset: i64| (base as u64).wrapping_add_signed(offset);
        match src {
            Src::Reg(register) => self.registers[self.here.registers + wide(register)],
            Src::Imm(value) => value,
            Src::Special(special) => self.special(special, env),
            Src::Global(number, plus) => env
                .launch
                .addresses
                .get(wide(number))
                .map_or(0, |at| at.wrapping_add_signed(plus)),
            Src::Shared(number, plus) => env
                .shared_at
                .get(wide(number))
                .map_or(0, |at| u64::from(*at).wrapping_add_signed(plus)),
            Src::Local(plus) => offset(self.here.local, plus),
            Src::Param(plus) => offset(self.here.params, plus),
            Src::Function(number) => FUNCTION + u64::from(number),
        }
    }

    /// Writes a result, cut to the register's width.
    #[inline]
    pub(super) fn set(&mut self, d: Dst, value: u64) {
        if d != Dst::NONE {
            let at = self.here.registers + wide(d.register);
            self.registers[at] = low(value, d.bits);
        }
    }

    /// Writes a result of a type, continued with its sign if the register is wider.
    #[inline]
    pub(super) fn set_as(&mut self, d: Dst, value: u64, ty: Ty) {
        let value = if ty.is_signed() {
            signed(value, ty.bits()).cast_unsigned()
        } else {
            value
        };
        self.set(d, value);
    }

    /// Whether a predicate holds.
    #[inline]
    pub(super) fn holds(&self, test: Test, env: &mut Env<'_>) -> bool {
        (self.get(test.src, env) & 1 == 1) != test.negative
    }

    fn special(&self, special: Special, env: &mut Env<'_>) -> u64 {
        let side = |sides: [u32; 3], at: u8, beyond: u32| {
            u64::from(sides.get(usize::from(at)).copied().unwrap_or(beyond))
        };
        let (block, lane) = (env.launch.block, self.number % 32);
        let bit = 1_u64 << lane;
        match special {
            Special::Tid(at) => side(self.place(block), at, 0),
            Special::Ntid(at) => side(block, at, 1),
            Special::Ctaid(at) => side(env.index, at, 0),
            Special::Nctaid(at) => side(env.launch.grid, at, 1),
            Special::Lane => u64::from(lane),
            Special::Warp => u64::from(self.number / 32),
            Special::Warps => u64::from(block.iter().product::<u32>().div_ceil(32)),
            Special::Sm => env.number % u64::from(env.launch.multiprocessors.max(1)),
            Special::Sms => u64::from(env.launch.multiprocessors),
            Special::Grid => 1,
            Special::MaskEq => bit,
            Special::MaskLt => bit - 1,
            Special::MaskLe => bit | (bit - 1),
            Special::MaskGt => low(!(bit | (bit - 1)), 32),
            Special::MaskGe => low(!(bit - 1), 32),
            Special::Clock | Special::TimerLow => low(env.machine.now(), 32),
            Special::ClockHigh | Special::TimerHigh => env.machine.now() >> 32,
            Special::Clock64 | Special::Timer => env.machine.now(),
            Special::DynamicShared => u64::from(env.launch.dynamic_shared),
            Special::TotalShared => u64::from(env.shared_bytes),
        }
    }
}

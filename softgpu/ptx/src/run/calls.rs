//! Calls and returns.

use super::thread::{FUNCTION, Frame, State, Thread};
use super::{Env, TrapKind};
use crate::code::{Call, Carried, Op, Target};
use crate::lower::{Formal, Lowered};
use crate::ty::low;

/// Calls inside calls, and bytes of local memory of a thread, at most (compute capability 9.0 has
/// 512 KiB of local memory).
const DEPTH: usize = 4096;
const LOCAL_BYTES: usize = 512 << 10;

fn wide(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

impl Thread {
    /// Enters the function of a call.
    pub(super) fn call(&mut self, call: &Call, env: &mut Env<'_>) -> Result<(), TrapKind> {
        let number = match &call.target {
            Target::Known(number) => wide(*number),
            Target::Absent(name) if &**name == "__assertfail" => return Err(TrapKind::Assertion),
            Target::Absent(name) => return Err(TrapKind::Missing(name.to_string())),
            Target::Address(src) => {
                let address = self.get(*src, env);
                let number = address
                    .checked_sub(FUNCTION)
                    .and_then(|number| usize::try_from(number).ok());
                number
                    .filter(|number| *number < env.functions.len())
                    .ok_or(TrapKind::NoFunction(address))?
            }
        };
        let functions = env.functions;
        let function = &functions[number];
        if self.callers.len() >= DEPTH
            || self.local.len() + wide(function.local_bytes) > LOCAL_BYTES
        {
            return Err(TrapKind::Stack);
        }
        let values: Vec<Vec<u8>> = call
            .inputs
            .iter()
            .map(|input| self.bytes_of(input, env))
            .collect();
        self.callers.push(self.here);
        self.enter(number, function);
        for (formal, value) in function.params.iter().zip(values) {
            self.take(formal, &value);
        }
        Ok(())
    }

    fn enter(&mut self, number: usize, function: &Lowered) {
        let registers = self.registers.len();
        let (local, params) = (
            self.local.len().next_multiple_of(16),
            self.params.len().next_multiple_of(16),
        );
        self.registers
            .resize(registers + wide(function.registers), 0);
        self.local.resize(local + wide(function.local_bytes), 0);
        self.params.resize(params + wide(function.param_bytes), 0);
        self.here = Frame {
            function: number,
            pc: 0,
            registers,
            local,
            params,
        };
    }

    /// The bytes of an input, or of a result on the function's side.
    fn bytes_of(&self, carried: &Carried, env: &mut Env<'_>) -> Vec<u8> {
        match carried {
            Carried::Bytes(offset, size) => {
                let from = self.here.params + wide(*offset);
                self.params
                    .get(from..from + wide(*size))
                    .map_or_else(Vec::new, <[u8]>::to_vec)
            }
            Carried::Value(src, size) => {
                self.get(*src, env).to_le_bytes()[..wide(*size).min(8)].to_vec()
            }
            Carried::Into(_) => Vec::new(),
        }
    }

    /// Puts bytes into a parameter or a result of the function that runs.
    fn take(&mut self, formal: &Formal, bytes: &[u8]) {
        if let Some(register) = formal.register {
            self.set(register, number(bytes));
            return;
        }
        self.write(formal.offset, formal.size, bytes);
    }

    fn write(&mut self, offset: u32, size: u32, bytes: &[u8]) {
        let from = self.here.params + wide(offset);
        let count = wide(size).min(bytes.len());
        if let Some(into) = self.params.get_mut(from..from + count) {
            into.copy_from_slice(&bytes[..count]);
        }
    }

    /// Returns to the caller; the thread ends if there is none.
    pub(super) fn ret(&mut self, env: &mut Env<'_>) {
        let functions = env.functions;
        let returns = &functions[self.here.function].returns;
        let Some(caller) = self.callers.pop() else {
            self.state = Some(State::Ended);
            return;
        };
        let values: Vec<Vec<u8>> = returns.iter().map(|formal| self.result(formal)).collect();
        self.registers.truncate(self.here.registers);
        self.local.truncate(self.here.local);
        self.params.truncate(self.here.params);
        self.here = caller;
        if let Op::Call(call) = &functions[caller.function].code[caller.pc].op {
            for (output, value) in call.outputs.iter().zip(values) {
                match output {
                    Carried::Bytes(offset, size) => self.write(*offset, *size, &value),
                    Carried::Into(d) => self.set(*d, low(number(&value), 64)),
                    Carried::Value(..) => {}
                }
            }
        }
        self.here.pc += 1;
    }

    /// The bytes of a result of the function that runs.
    fn result(&self, formal: &Formal) -> Vec<u8> {
        if let Some(register) = formal.register {
            let value = self.registers[self.here.registers + wide(register.register)];
            return value.to_le_bytes()[..wide(formal.size).min(8)].to_vec();
        }
        let from = self.here.params + wide(formal.offset);
        self.params
            .get(from..from + wide(formal.size))
            .map_or_else(Vec::new, <[u8]>::to_vec)
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .take(8)
        .rev()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

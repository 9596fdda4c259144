//! One instruction after the other.

use super::thread::{At, State, Thread};
use super::{Env, TrapKind, space};
use crate::code::{Dst, Join, NumberTest, Op, Test};
use crate::math::float::{self, Form};
use crate::math::int::{self, Binary, Compare};
use crate::math::{convert::Conversion, to_f64};
use crate::ty::{Ty, low, signed};

impl Thread {
    /// Runs until the thread waits or ends, or has run `left` instructions. Reduces `left`.
    pub(super) fn run(&mut self, env: &mut Env<'_>, left: &mut u64) -> Result<(), TrapKind> {
        let functions = env.functions;
        while *left > 0 {
            *left -= 1;
            let code = &functions[self.here.function].code;
            let inst = &code[self.here.pc];
            if let Some(guard) = inst.guard
                && !self.holds(guard, env)
            {
                self.here.pc += 1;
                continue;
            }
            match &inst.op {
                Op::Bra { to } => self.here.pc = usize::try_from(*to).unwrap_or(0),
                Op::Brx { to, a } => {
                    let at = usize::try_from(low(self.get(*a, env), 32)).unwrap_or(0);
                    let to = to.get(at).ok_or(TrapKind::Trap)?;
                    self.here.pc = usize::try_from(*to).unwrap_or(0);
                }
                Op::Call(call) => self.call(call, env)?,
                Op::Ret => self.ret(env),
                Op::Exit => self.state = Some(State::Ended),
                op => {
                    let goes_on = self.execute(op, env)?;
                    self.here.pc += 1;
                    if !goes_on || inst.is_volatile {
                        return Ok(());
                    }
                }
            }
            if self.state != Some(State::Ready) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Runs an instruction that is no jump. Returns false if other threads have their turn now.
    fn execute(&mut self, op: &Op, env: &mut Env<'_>) -> Result<bool, TrapKind> {
        match op {
            Op::Nop => {}
            Op::Yield => return Ok(false),
            Op::Mov { d, a } => {
                let value = self.get(*a, env);
                self.set(*d, value);
            }
            Op::Int2 { of, ty, d, a, b } => {
                let (a, b) = (self.get(*a, env), self.get(*b, env));
                let value = int::binary(*of, *ty, a, b);
                if *of == Binary::MulWide {
                    self.set(*d, value)
                } else {
                    self.set_as(*d, value, *ty)
                }
            }
            Op::Int3 { of, ty, d, a, b, c } => {
                let (a, b, c) = (self.get(*a, env), self.get(*b, env), self.get(*c, env));
                let value = int::ternary(*of, *ty, a, b, c);
                if *of == int::Ternary::MadWide {
                    self.set(*d, value)
                } else {
                    self.set_as(*d, value, *ty)
                }
            }
            Op::Float2 { of, form, d, a, b } => {
                let (a, b) = (self.get(*a, env), self.get(*b, env));
                self.set(*d, form.binary(*of, a, b));
            }
            Op::Fma { form, d, a, b, c } => {
                let (a, b, c) = (self.get(*a, env), self.get(*b, env), self.get(*c, env));
                self.set(*d, form.fused(a, b, c));
            }
            Op::Setp {
                how,
                ty,
                ftz,
                join,
                d,
                not,
                a,
                b,
            } => {
                let (x, y) = (self.get(*a, env), self.get(*b, env));
                let holds = compare(*how, *ty, *ftz, x, y);
                let (yes, no) = (
                    self.joined(holds, *join, env),
                    self.joined(!holds, *join, env),
                );
                self.set(*d, u64::from(yes));
                self.set(*not, u64::from(no));
            }
            Op::Selp { d, a, b, test } => {
                let chosen = if self.holds(*test, env) { a } else { b };
                let value = self.get(*chosen, env);
                self.set(*d, value);
            }
            Op::Cvt { of, d, a } => {
                let value = self.get(*a, env);
                self.set_as(*d, of.of(value), of.to);
            }
            Op::Ld {
                place,
                ty,
                ds,
                a,
                offset,
            } => {
                let address = self.get(*a, env).wrapping_add_signed(*offset);
                self.load_all(*place, *ty, ds, address, env)?;
            }
            Op::St {
                place,
                ty,
                values,
                a,
                offset,
            } => {
                let mut address = self.get(*a, env).wrapping_add_signed(*offset);
                Self::check(*place, address, ty.bytes() * count(values.len()))?;
                for value in values {
                    let value = low(self.get(*value, env), ty.bits());
                    self.store(*place, address, ty.bytes(), value, env)?;
                    address = address.wrapping_add(u64::from(ty.bytes()));
                }
            }
            other => return self.execute_rare(other, env),
        }
        Ok(true)
    }

    fn execute_rare(&mut self, op: &Op, env: &mut Env<'_>) -> Result<bool, TrapKind> {
        match op {
            Op::Int1 { of, ty, d, a } => {
                let value = self.get(*a, env);
                let result = int::unary(*of, *ty, value);
                let same = matches!(of, int::Unary::Neg | int::Unary::Abs | int::Unary::Not);
                if same {
                    self.set_as(*d, result, *ty)
                } else {
                    self.set(*d, result)
                }
            }
            Op::Pack { d, bits, parts } => {
                let mut value = 0;
                for (at, part) in parts.iter().enumerate() {
                    value |= low(self.get(*part, env), *bits) << (bits * count(at));
                }
                self.set(*d, value);
            }
            Op::Unpack { ds, bits, a } => {
                let value = self.get(*a, env);
                for (at, d) in ds.iter().enumerate() {
                    self.set(*d, low(value >> (bits * count(at)), *bits));
                }
            }
            Op::Bfi { ty, d, a, b, c, e } => {
                let (a, b) = (self.get(*a, env), self.get(*b, env));
                let (c, e) = (self.get(*c, env), self.get(*e, env));
                self.set(*d, int::insert(*ty, a, b, c, e));
            }
            Op::Lop3 { d, a, b, c, table } => {
                let (a, b, c) = (self.get(*a, env), self.get(*b, env), self.get(*c, env));
                self.set(*d, int::lop3(a, b, c, *table));
            }
            Op::Dot {
                d,
                a,
                b,
                c,
                signs,
                halves,
            } => {
                let (a, b, c) = (self.get(*a, env), self.get(*b, env), self.get(*c, env));
                self.set(*d, int::dot(a, b, c, *signs, *halves));
            }
            Op::Carry { .. } | Op::MadCarry { .. } => self.carried(op, env),
            Op::Float1 { of, form, d, a } => {
                let value = self.get(*a, env);
                self.set(*d, form.unary(*of, value));
            }
            Op::Halves1 { of, form, d, a } => {
                let a = self.get(*a, env);
                self.set(*d, halves(|at| form.unary(*of, low(a >> at, 16))));
            }
            Op::Halves2 { of, form, d, a, b } => {
                let (a, b) = (self.get(*a, env), self.get(*b, env));
                self.set(
                    *d,
                    halves(|at| form.binary(*of, low(a >> at, 16), low(b >> at, 16))),
                );
            }
            Op::HalvesFma { form, d, a, b, c } => {
                let (a, b, c) = (self.get(*a, env), self.get(*b, env), self.get(*c, env));
                self.set(
                    *d,
                    halves(|at| form.fused(low(a >> at, 16), low(b >> at, 16), low(c >> at, 16))),
                );
            }
            Op::TestNumber { of, ty, d, a } => {
                let value = self.get(*a, env);
                self.set(*d, u64::from(is(*of, *ty, value)));
            }
            Op::Set {
                how,
                ty,
                ftz,
                join,
                d,
                yes,
                a,
                b,
            } => {
                let (a, b) = (self.get(*a, env), self.get(*b, env));
                let holds = self.joined(compare(*how, *ty, *ftz, a, b), *join, env);
                self.set(*d, if holds { *yes } else { 0 });
            }
            Op::Slct { d, a, b, by, c } => {
                let c = self.get(*c, env);
                let positive = if by.is_float() {
                    to_f64(c, *by) >= 0.0
                } else {
                    signed(c, by.bits()) >= 0
                };
                let value = self.get(if positive { *a } else { *b }, env);
                self.set(*d, value);
            }
            Op::PredLogic { of, d, a, b } => {
                let (a, b) = (self.holds(*a, env), self.holds(*b, env));
                self.set(*d, int::binary(*of, Ty::Pred, u64::from(a), u64::from(b)));
            }
            Op::CvtHalves { of, d, a, b } => {
                let of: &Conversion = of;
                let (high, lowest) = (self.get(*a, env), self.get(*b, env));
                self.set(*d, of.of(high) << 16 | of.of(lowest));
            }
            Op::Cvta {
                place,
                from_generic,
                d,
                a,
            } => {
                let address = self.get(*a, env);
                self.set(
                    *d,
                    if *from_generic {
                        space::inside(*place, address)
                    } else {
                        space::generic(*place, address)
                    },
                );
            }
            Op::Isspacep { place, d, a } => {
                let address = self.get(*a, env);
                self.set(*d, u64::from(space::is_in(*place, address)));
            }
            Op::Atom {
                of,
                place,
                ty,
                d,
                a,
                offset,
                b,
                c,
            } => {
                let address = self.get(*a, env).wrapping_add_signed(*offset);
                let operands = (self.get(*b, env), self.get(*c, env));
                let old = self.change(*of, (*place, address), *ty, operands, env)?;
                self.set_as(*d, old, *ty);
            }
            other => self.execute_meeting(other, env)?,
        }
        Ok(true)
    }

    /// Instructions at which the thread waits, or ends.
    fn execute_meeting(&mut self, op: &Op, env: &mut Env<'_>) -> Result<(), TrapKind> {
        match op {
            Op::Bar {
                a,
                count,
                tally,
                test,
                d,
                arrives,
            } => {
                let id = u32::try_from(self.get(*a, env) & 15).unwrap_or(0);
                let count =
                    count.map(|count| u32::try_from(low(self.get(count, env), 32)).unwrap_or(0));
                let vote = self.holds(*test, env);
                self.state = Some(State::Barrier {
                    id,
                    count,
                    tally: *tally,
                    vote,
                    d: *d,
                    arrives: *arrives,
                });
            }
            Op::Meet {
                of,
                ty,
                d,
                p,
                a,
                b,
                c,
                test,
                mask,
            } => {
                let word = |value: u64| u32::try_from(low(value, 32)).unwrap_or(0);
                let (a, test) = (
                    low(self.get(*a, env), ty.bits().max(32)),
                    self.holds(*test, env),
                );
                let (b, c) = (word(self.get(*b, env)), word(self.get(*c, env)));
                let mask = mask.map_or(u32::MAX, |mask| word(self.get(mask, env)));
                let mask = mask | 1 << (self.number % 32);
                self.state = Some(State::Meets(At {
                    of: *of,
                    ty: *ty,
                    d: *d,
                    p: *p,
                    a,
                    b,
                    c,
                    test,
                    mask,
                }));
            }
            Op::ActiveMask { d } => self.state = Some(State::Looks(*d)),
            Op::Trap => return Err(TrapKind::Trap),
            Op::Unknown(at) => {
                let unknown = &env.functions[self.here.function].unknown;
                let text = usize::try_from(*at).ok().and_then(|at| unknown.get(at));
                return Err(TrapKind::Unknown(
                    text.map_or_else(String::new, |(_, text)| text.clone()),
                ));
            }
            _ => {}
        }
        Ok(())
    }

    fn load_all(
        &mut self,
        place: crate::code::Place,
        ty: Ty,
        ds: &[Dst],
        mut address: u64,
        env: &mut Env<'_>,
    ) -> Result<(), TrapKind> {
        Self::check(place, address, ty.bytes() * count(ds.len()))?;
        for d in ds {
            let value = self.load(place, address, ty.bytes(), env)?;
            self.set_as(*d, value, ty);
            address = address.wrapping_add(u64::from(ty.bytes()));
        }
        Ok(())
    }

    /// Additions with the carry.
    fn carried(&mut self, op: &Op, env: &mut Env<'_>) {
        let (ty, d, sum, sets) = match *op {
            Op::Carry {
                ty,
                d,
                a,
                b,
                takes,
                sets,
                minus,
            } => {
                let bits = ty.bits();
                let (a, b) = (
                    u128::from(low(self.get(a, env), bits)),
                    u128::from(low(self.get(b, env), bits)),
                );
                let carry = u128::from(takes && self.carry);
                // A borrow is a carry of 1, as in an addition of the complement.
                let sum = if minus {
                    a.wrapping_sub(b).wrapping_sub(carry)
                } else {
                    a + b + carry
                };
                (ty, d, sum, sets)
            }
            Op::MadCarry {
                ty,
                d,
                a,
                b,
                c,
                high,
                takes,
                sets,
            } => {
                let (x, y) = (self.get(a, env), self.get(b, env));
                let of = if high { Binary::MulHigh } else { Binary::Mul };
                let product = u128::from(int::binary(of, ty, x, y));
                let c = u128::from(low(self.get(c, env), ty.bits()));
                (ty, d, product + c + u128::from(takes && self.carry), sets)
            }
            _ => return,
        };
        if sets {
            self.carry = sum >> ty.bits() & 1 == 1;
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the register takes the lowest bits"
        )]
        self.set_as(d, low(sum as u64, ty.bits()), ty);
    }

    fn joined(&self, holds: bool, join: Option<(Join, Test)>, env: &mut Env<'_>) -> bool {
        match join {
            None => holds,
            Some((Join::And, test)) => holds & self.holds(test, env),
            Some((Join::Or, test)) => holds | self.holds(test, env),
            Some((Join::Xor, test)) => holds ^ self.holds(test, env),
        }
    }
}

fn count(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(1)
}

fn halves(of: impl Fn(u32) -> u64) -> u64 {
    of(0) | of(16) << 16
}

fn compare(how: Compare, ty: Ty, ftz: bool, a: u64, b: u64) -> bool {
    if !ty.is_float() {
        return int::compare(how, ty, a, b);
    }
    let form = Form {
        ty,
        mode: crate::math::Mode::Nearest,
        ftz,
        sat: false,
    };
    float::compare(
        how,
        to_f64(form.flushed(a), ty),
        to_f64(form.flushed(b), ty),
    )
}

fn is(of: NumberTest, ty: Ty, bits: u64) -> bool {
    let value = to_f64(bits, ty);
    let tiny = if ty == Ty::F64 {
        f64::MIN_POSITIVE
    } else {
        f64::from(f32::MIN_POSITIVE)
    };
    match of {
        NumberTest::Finite => value.is_finite(),
        NumberTest::Infinite => value.is_infinite(),
        NumberTest::Number => !value.is_nan(),
        NumberTest::NotANumber => value.is_nan(),
        NumberTest::Normal => value.is_finite() && value.abs() >= tiny,
        NumberTest::Subnormal => value != 0.0 && value.abs() < tiny,
    }
}

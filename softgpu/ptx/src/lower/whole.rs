//! Whole numbers, bits and predicates.

use super::Operands;
use super::words::{Unknown, Words};
use crate::code::{Join, Op, Test};
use crate::math::int::{Binary, Compare, Ternary, Unary};
use crate::ty::Ty;

/// The comparison of this name.
pub(super) fn comparison(word: &str) -> Option<Compare> {
    Some(match word {
        "eq" => Compare::Eq,
        "ne" => Compare::Ne,
        "lt" => Compare::Lt,
        "le" => Compare::Le,
        "gt" => Compare::Gt,
        "ge" => Compare::Ge,
        "lo" => Compare::Lo,
        "ls" => Compare::Ls,
        "hi" => Compare::Hi,
        "hs" => Compare::Hs,
        "equ" => Compare::Equ,
        "neu" => Compare::Neu,
        "ltu" => Compare::Ltu,
        "leu" => Compare::Leu,
        "gtu" => Compare::Gtu,
        "geu" => Compare::Geu,
        "num" => Compare::Num,
        "nan" => Compare::Nan,
        _ => return None,
    })
}

/// A comparison, what its result is joined with, and whether small numbers are zero.
type How = (Compare, Option<(Join, Test)>, bool);

fn join(word: &str) -> Option<Join> {
    match word {
        "and" => Some(Join::And),
        "or" => Some(Join::Or),
        "xor" => Some(Join::Xor),
        _ => None,
    }
}

impl Operands<'_, '_, '_> {
    /// The operation, if the instruction is of this family.
    pub(super) fn whole(&mut self, words: &mut Words<'_>) -> Option<Result<Op, Unknown>> {
        let floats = words.has_type(|ty| ty.is_float() || ty.half().is_some());
        let op = match self.name {
            "setp" => self.setp(words),
            "set" => self.set(words),
            "selp" => self.selp(words),
            "slct" => self.slct(words),
            "and" | "or" | "xor" | "not" if words.has_type(|ty| ty == Ty::Pred) => {
                self.logic(words)
            }
            "add" | "sub" | "addc" | "subc" if !floats => self.add(words),
            "mul" | "mad" | "madc" if !floats => self.mul(words),
            "mul24" | "mad24" => self.mul24(words),
            "div" | "rem" | "min" | "max" | "and" | "or" | "xor" | "shl" | "shr" if !floats => {
                self.two(words)
            }
            "neg" | "abs" | "not" | "cnot" | "popc" | "clz" | "brev" | "bfind" if !floats => {
                self.one(words)
            }
            "sad" => self.three(words, Ternary::Sad),
            "bfe" => self.three(words, Ternary::Bfe),
            "bfi" => self.bfi(words),
            "lop3" => self.lop3(words),
            "shf" => self.funnel(words),
            "prmt" => self.prmt(words),
            "dp4a" | "dp2a" => self.dot(words),
            _ => return None,
        };
        Some(op)
    }

    fn one(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let shift = words.take("shiftamt");
        let ty = words.ty()?;
        let of = match self.name {
            "neg" => Unary::Neg,
            "abs" => Unary::Abs,
            "not" => Unary::Not,
            "cnot" => Unary::Cnot,
            "popc" => Unary::Popc,
            "clz" => Unary::Clz,
            "brev" => Unary::Brev,
            _ if shift => Unary::BfindShift,
            _ => Unary::Bfind,
        };
        Ok(Op::Int1 {
            of,
            ty,
            d: self.dst(0)?,
            a: self.src(1, ty)?,
        })
    }

    fn two(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let ty = words.ty()?;
        let of = match self.name {
            "div" => Binary::Div,
            "rem" => Binary::Rem,
            "min" => Binary::Min,
            "max" => Binary::Max,
            "and" => Binary::And,
            "or" => Binary::Or,
            "xor" => Binary::Xor,
            "shl" => Binary::Shl,
            _ => Binary::Shr,
        };
        let count = matches!(of, Binary::Shl | Binary::Shr);
        let b = self.src(2, if count { Ty::U32 } else { ty })?;
        Ok(Op::Int2 {
            of,
            ty,
            d: self.dst(0)?,
            a: self.src(1, ty)?,
            b,
        })
    }

    fn three(&mut self, words: &mut Words<'_>, of: Ternary) -> Result<Op, Unknown> {
        let ty = words.ty()?;
        let counts = if of == Ternary::Bfe { Ty::U32 } else { ty };
        Ok(Op::Int3 {
            of,
            ty,
            d: self.dst(0)?,
            a: self.src(1, ty)?,
            b: self.src(2, counts)?,
            c: self.src(3, counts)?,
        })
    }

    fn add(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let (sets, sat) = (words.take("cc"), words.take("sat"));
        let ty = words.ty()?;
        if ty.half().is_some() {
            return Err("has a type that is not known".to_owned());
        }
        let (takes, minus) = (self.name.ends_with('c'), self.name.starts_with("sub"));
        let (d, a, b) = (self.dst(0)?, self.src(1, ty)?, self.src(2, ty)?);
        if takes || sets {
            return Ok(Op::Carry {
                ty,
                d,
                a,
                b,
                takes,
                sets,
                minus,
            });
        }
        let of = match (minus, sat) {
            (false, false) => Binary::Add,
            (false, true) => Binary::AddSat,
            (true, false) => Binary::Sub,
            (true, true) => Binary::SubSat,
        };
        Ok(Op::Int2 { of, ty, d, a, b })
    }

    fn mul(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let (high, wide) = (words.take("hi"), words.take("wide"));
        let (sets, sat) = (words.take("cc"), words.take("sat"));
        words.take("lo");
        let ty = words.ty()?;
        let (d, a, b) = (self.dst(0)?, self.src(1, ty)?, self.src(2, ty)?);
        if self.name == "mul" {
            let of = if wide {
                Binary::MulWide
            } else if high {
                Binary::MulHigh
            } else {
                Binary::Mul
            };
            return Ok(Op::Int2 { of, ty, d, a, b });
        }
        let third = match ty {
            Ty::U16 if wide => Ty::U32,
            Ty::S16 if wide => Ty::S32,
            Ty::U32 if wide => Ty::U64,
            Ty::S32 if wide => Ty::S64,
            ty => ty,
        };
        let c = self.src(3, third)?;
        let takes = self.name == "madc";
        if takes || sets {
            return Ok(Op::MadCarry {
                ty,
                d,
                a,
                b,
                c,
                high,
                takes,
                sets,
            });
        }
        let of = match (wide, high, sat) {
            (true, ..) => Ternary::MadWide,
            (_, true, true) => Ternary::MadHighSat,
            (_, true, false) => Ternary::MadHigh,
            _ => Ternary::Mad,
        };
        Ok(Op::Int3 { of, ty, d, a, b, c })
    }

    fn mul24(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let high = words.take("hi");
        words.take("lo");
        let ty = words.ty()?;
        let (d, a, b) = (self.dst(0)?, self.src(1, ty)?, self.src(2, ty)?);
        if self.name == "mul24" {
            let of = if high {
                Binary::Mul24High
            } else {
                Binary::Mul24
            };
            return Ok(Op::Int2 { of, ty, d, a, b });
        }
        let of = if high {
            Ternary::Mad24High
        } else {
            Ternary::Mad24
        };
        Ok(Op::Int3 {
            of,
            ty,
            d,
            a,
            b,
            c: self.src(3, ty)?,
        })
    }

    fn bfi(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let ty = words.ty()?;
        let (a, b) = (self.src(1, ty)?, self.src(2, ty)?);
        Ok(Op::Bfi {
            ty,
            d: self.dst(0)?,
            a,
            b,
            c: self.src(3, Ty::U32)?,
            e: self.src(4, Ty::U32)?,
        })
    }

    fn lop3(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let ty = words.ty()?;
        let crate::code::Src::Imm(table) = self.src(4, Ty::U32)? else {
            return Err("has a table that is no number".to_owned());
        };
        Ok(Op::Lop3 {
            d: self.dst(0)?,
            a: self.src(1, ty)?,
            b: self.src(2, ty)?,
            c: self.src(3, ty)?,
            table,
        })
    }

    fn funnel(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let (left, right) = (words.take("l"), words.take("r"));
        let (wrap, clamp) = (words.take("wrap"), words.take("clamp"));
        let of = match (left, right, wrap, clamp) {
            (true, false, true, false) => Ternary::ShfLeftWrap,
            (true, false, false, true) => Ternary::ShfLeftClamp,
            (false, true, true, false) => Ternary::ShfRightWrap,
            (false, true, false, true) => Ternary::ShfRightClamp,
            _ => return Err("has a direction that is not known".to_owned()),
        };
        self.three(words, of)
    }

    fn prmt(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let mode = words.take_as(|word| {
            Some(match word {
                "f4e" => Ternary::PrmtF4e,
                "b4e" => Ternary::PrmtB4e,
                "rc8" => Ternary::PrmtRc8,
                "ecl" => Ternary::PrmtEcl,
                "ecr" => Ternary::PrmtEcr,
                "rc16" => Ternary::PrmtRc16,
                _ => return None,
            })
        });
        self.three(words, mode.unwrap_or(Ternary::Prmt))
    }

    fn dot(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let (low, high) = (words.take("lo"), words.take("hi"));
        let halves = (low || high).then_some(high);
        let (first, second) = (words.ty()?, words.ty()?);
        if halves.is_some() != (self.name == "dp2a") {
            return Err("has no half".to_owned());
        }
        let (a, b, c) = (
            self.src(1, first)?,
            self.src(2, second)?,
            self.src(3, Ty::B32)?,
        );
        Ok(Op::Dot {
            d: self.dst(0)?,
            a,
            b,
            c,
            signs: (first.is_signed(), second.is_signed()),
            halves,
        })
    }

    fn how(&mut self, words: &mut Words<'_>, third: usize) -> Result<How, Unknown> {
        let how = words
            .take_as(comparison)
            .ok_or("has a comparison that is not known")?;
        let join = words.take_as(join);
        let test = if self.has(third) {
            Some(self.test(third)?)
        } else {
            None
        };
        Ok((how, join.zip(test), words.take("ftz")))
    }

    fn setp(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let (how, join, ftz) = self.how(words, 3)?;
        let ty = words.ty()?;
        if ty.half().is_some() {
            return Err("has a type that is not known".to_owned());
        }
        let (d, not) = self.results(0)?;
        Ok(Op::Setp {
            how,
            ty,
            ftz,
            join,
            d,
            not,
            a: self.src(1, ty)?,
            b: self.src(2, ty)?,
        })
    }

    fn set(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let (how, join, ftz) = self.how(words, 3)?;
        let (to, ty) = (words.ty()?, words.ty()?);
        let yes = match to {
            Ty::F32 => u64::from(1_f32.to_bits()),
            Ty::U32 | Ty::S32 => 0xffff_ffff,
            _ => return Err("has a type that is not known".to_owned()),
        };
        Ok(Op::Set {
            how,
            ty,
            ftz,
            join,
            d: self.dst(0)?,
            yes,
            a: self.src(1, ty)?,
            b: self.src(2, ty)?,
        })
    }

    fn selp(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let ty = words.ty()?;
        Ok(Op::Selp {
            d: self.dst(0)?,
            a: self.src(1, ty)?,
            b: self.src(2, ty)?,
            test: self.test(3)?,
        })
    }

    fn slct(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        words.take("ftz");
        let (ty, by) = (words.ty()?, words.ty()?);
        Ok(Op::Slct {
            d: self.dst(0)?,
            a: self.src(1, ty)?,
            b: self.src(2, ty)?,
            by,
            c: self.src(3, by)?,
        })
    }

    fn logic(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        words.ty()?;
        let a = self.test(1)?;
        let (of, b) = match self.name {
            "and" => (Binary::And, self.test(2)?),
            "or" => (Binary::Or, self.test(2)?),
            "xor" => (Binary::Xor, self.test(2)?),
            _ => (
                Binary::Xor,
                Test {
                    src: crate::code::Src::Imm(1),
                    negative: false,
                },
            ),
        };
        Ok(Op::PredLogic {
            of,
            d: self.dst(0)?,
            a,
            b,
        })
    }
}

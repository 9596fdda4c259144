//! Floating-point numbers and conversions.

use super::Operands;
use super::words::{Unknown, Words};
use crate::code::{NumberTest, Op};
use crate::math::Mode;
use crate::math::convert::Conversion;
use crate::math::float::{Binary, Form, Unary};
use crate::ty::Ty;

impl Operands<'_, '_, '_> {
    /// The operation, if the instruction is of this family.
    pub(super) fn real(&mut self, words: &mut Words<'_>) -> Option<Result<Op, Unknown>> {
        let op = match self.name {
            "add" | "sub" | "mul" | "div" => self.arithmetic(words),
            "min" | "max" => self.extreme(words),
            "copysign" => self.pair(words, Binary::Copysign),
            "fma" | "mad" => self.fma(words),
            "neg" => self.single(words, Unary::Neg),
            "abs" => self.single(words, Unary::Abs),
            "sqrt" => self.single(words, Unary::Sqrt),
            "rsqrt" => self.single(words, Unary::Rsqrt),
            "rcp" => self.single(words, Unary::Rcp),
            "sin" => self.single(words, Unary::Sin),
            "cos" => self.single(words, Unary::Cos),
            "lg2" => self.single(words, Unary::Lg2),
            "ex2" => self.single(words, Unary::Ex2),
            "tanh" => self.single(words, Unary::Tanh),
            "testp" => self.testp(words),
            "cvt" => self.cvt(words),
            _ => return None,
        };
        Some(op)
    }

    fn arithmetic(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let of = match self.name {
            "add" => Binary::Add,
            "sub" => Binary::Sub,
            "mul" => Binary::Mul,
            _ => Binary::Div,
        };
        self.pair(words, of)
    }

    fn extreme(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let of = match (self.name, words.take("NaN")) {
            ("min", false) => Binary::Min,
            ("min", true) => Binary::MinNan,
            (_, false) => Binary::Max,
            (_, true) => Binary::MaxNan,
        };
        self.pair(words, of)
    }

    fn pair(&mut self, words: &mut Words<'_>, of: Binary) -> Result<Op, Unknown> {
        let form = words.form()?;
        let (d, a, b) = (self.dst(0)?, self.src(1, form.ty)?, self.src(2, form.ty)?);
        if let Some(ty) = form.ty.half() {
            return Ok(Op::Halves2 {
                of,
                form: Form { ty, ..form },
                d,
                a,
                b,
            });
        }
        real(form)?;
        Ok(Op::Float2 { of, form, d, a, b })
    }

    fn single(&mut self, words: &mut Words<'_>, of: Unary) -> Result<Op, Unknown> {
        let form = words.form()?;
        let (d, a) = (self.dst(0)?, self.src(1, form.ty)?);
        if let Some(ty) = form.ty.half() {
            return Ok(Op::Halves1 {
                of,
                form: Form { ty, ..form },
                d,
                a,
            });
        }
        real(form)?;
        Ok(Op::Float1 { of, form, d, a })
    }

    fn fma(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let form = words.form()?;
        let (d, a, b, c) = (
            self.dst(0)?,
            self.src(1, form.ty)?,
            self.src(2, form.ty)?,
            self.src(3, form.ty)?,
        );
        if let Some(ty) = form.ty.half() {
            return Ok(Op::HalvesFma {
                form: Form { ty, ..form },
                d,
                a,
                b,
                c,
            });
        }
        real(form)?;
        Ok(Op::Fma { form, d, a, b, c })
    }

    fn testp(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let of = words.take_as(|word| {
            Some(match word {
                "finite" => NumberTest::Finite,
                "infinite" => NumberTest::Infinite,
                "number" => NumberTest::Number,
                "notanumber" => NumberTest::NotANumber,
                "normal" => NumberTest::Normal,
                "subnormal" => NumberTest::Subnormal,
                _ => return None,
            })
        });
        let ty = words.ty()?;
        Ok(Op::TestNumber {
            of: of.ok_or("has a test that is not known")?,
            ty,
            d: self.dst(0)?,
            a: self.src(1, ty)?,
        })
    }

    fn cvt(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        let (rounding, to_whole) = (words.rounding(), words.whole_rounding());
        let (ftz, sat) = (words.take("ftz"), words.take("sat"));
        let (to, from) = (words.ty()?, words.ty()?);
        let mode = to_whole.or(rounding).unwrap_or_default();
        if let Some(half) = to.half() {
            if from != Ty::F32 {
                return Err("has a type that is not known".to_owned());
            }
            let of = Conversion {
                from,
                to: half,
                mode,
                whole: false,
                ftz: false,
                sat,
            };
            return Ok(Op::CvtHalves {
                of,
                d: self.dst(0)?,
                a: self.src(1, from)?,
                b: self.src(2, from)?,
            });
        }
        if [to, from]
            .iter()
            .any(|ty| ty.half().is_some() || *ty == Ty::Pred)
        {
            return Err("has a type that is not known".to_owned());
        }
        // A float becomes a whole number towards zero if the instruction does not say how.
        let mode = if from.is_float() && !to.is_float() && to_whole.is_none() {
            Mode::Zero
        } else {
            mode
        };
        let of = Conversion {
            from,
            to,
            mode,
            whole: to_whole.is_some(),
            ftz,
            sat,
        };
        Ok(Op::Cvt {
            of,
            d: self.dst(0)?,
            a: self.src(1, from)?,
        })
    }
}

fn real(form: Form) -> Result<(), Unknown> {
    if form.ty.is_float() {
        Ok(())
    } else {
        Err("has a type that is not known".to_owned())
    }
}

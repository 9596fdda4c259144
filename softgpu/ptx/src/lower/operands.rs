//! Operands: registers, numbers, addresses, predicates.

use super::words::Unknown;
use super::{Lowering, Meaning, Named, Operands};
use crate::ast::Arg;
use crate::code::{Dst, Special, Src, Test};
use crate::parse::numbers;
use crate::ty::Ty;

impl<'a> Lowering<'a, '_> {
    pub(super) fn guard(&self, scope: usize, name: &str, negative: bool) -> Result<Test, Unknown> {
        match self.find(scope, name) {
            Some(Named::Register(register, _)) => Ok(Test {
                src: Src::Reg(*register),
                negative,
            }),
            _ => Err(format!("names `{name}`, which is no register")),
        }
    }

    /// The address that a name and an offset mean.
    fn address(&mut self, scope: usize, name: &str, offset: i64) -> Result<Src, Unknown> {
        let found = match self.find(scope, name) {
            Some(Named::Register(register, _)) if offset == 0 => Src::Reg(*register),
            Some(Named::Param(at, _)) => Src::Param(i64::from(*at) + offset),
            Some(Named::Local(at)) => Src::Local(i64::from(*at) + offset),
            Some(Named::Shared(number)) => Src::Shared(*number, offset),
            Some(_) => return Err(format!("names `{name}`, which is no operand")),
            None => match self.names.get(name) {
                Some(Meaning::Variable(number)) => Src::Global(*number, offset),
                Some(Meaning::Shared(number)) => Src::Shared(*number, offset),
                Some(Meaning::Function(number)) => Src::Function(*number),
                Some(Meaning::Declared) => {
                    return Err(format!("takes the address of `{name}`, which has no body"));
                }
                None => Src::Special(
                    special(name).ok_or_else(|| format!("names `{name}`, which is not known"))?,
                ),
            },
        };
        match found {
            Src::Shared(number, _) => {
                self.out.shared.insert(number);
            }
            Src::Global(number, _) => {
                self.out.variables.insert(number);
            }
            _ => {}
        }
        Ok(found)
    }
}

/// A special register without a component.
fn special(name: &str) -> Option<Special> {
    Some(match name {
        "%laneid" => Special::Lane,
        "%warpid" => Special::Warp,
        "%nwarpid" => Special::Warps,
        "%smid" => Special::Sm,
        "%nsmid" => Special::Sms,
        "%gridid" => Special::Grid,
        "%lanemask_eq" => Special::MaskEq,
        "%lanemask_lt" => Special::MaskLt,
        "%lanemask_le" => Special::MaskLe,
        "%lanemask_gt" => Special::MaskGt,
        "%lanemask_ge" => Special::MaskGe,
        "%clock" => Special::Clock,
        "%clock_hi" => Special::ClockHigh,
        "%clock64" => Special::Clock64,
        "%globaltimer" => Special::Timer,
        "%globaltimer_lo" => Special::TimerLow,
        "%globaltimer_hi" => Special::TimerHigh,
        "%dynamic_smem_size" => Special::DynamicShared,
        "%total_smem_size" => Special::TotalShared,
        _ => return None,
    })
}

/// A component of a special register.
fn component(name: &str, part: &str) -> Option<Src> {
    let at = match part {
        "x" => 0,
        "y" => 1,
        "z" => 2,
        "w" => 3,
        _ => return None,
    };
    Some(Src::Special(match name {
        "%tid" => Special::Tid(at),
        "%ntid" => Special::Ntid(at),
        "%ctaid" | "%clusterid" => Special::Ctaid(at),
        "%nctaid" | "%nclusterid" => Special::Nctaid(at),
        // A cluster has one block.
        "%cluster_ctaid" => return Some(Src::Imm(0)),
        "%cluster_nctaid" => return Some(Src::Imm(1)),
        _ => return None,
    }))
}

impl<'a> Operands<'a, '_, '_> {
    fn arg(&self, at: usize) -> Result<&Arg<'a>, Unknown> {
        self.args
            .get(at)
            .ok_or_else(|| "has too few operands".to_owned())
    }

    /// Whether there is an operand at `at`.
    pub(super) fn has(&self, at: usize) -> bool {
        at < self.args.len()
    }

    /// The operand at `at`, of type `ty`.
    pub(super) fn src(&mut self, at: usize, ty: Ty) -> Result<Src, Unknown> {
        let arg = self.arg(at)?.clone();
        self.value(&arg, ty)
    }

    pub(super) fn value(&mut self, arg: &Arg<'a>, ty: Ty) -> Result<Src, Unknown> {
        match arg {
            Arg::Name("WARP_SZ", 0) => Ok(Src::Imm(32)),
            Arg::Name(name, offset) => self.of.address(self.scope, name, *offset),
            Arg::Part(name, part) => component(name, part)
                .ok_or_else(|| format!("names `{name}.{part}`, which is not known")),
            Arg::Number(negative, text) => numbers::bits(*negative, text, ty)
                .map(Src::Imm)
                .ok_or_else(|| format!("has the number `{text}`, which is not known")),
            _ => Err("has an operand of a form that is not known".to_owned()),
        }
    }

    /// The result at `at`.
    pub(super) fn dst(&self, at: usize) -> Result<Dst, Unknown> {
        self.result(self.arg(at)?)
    }

    pub(super) fn result(&self, arg: &Arg<'a>) -> Result<Dst, Unknown> {
        match arg {
            Arg::Name("_", 0) => Ok(Dst::NONE),
            Arg::Name(name, 0) => match self.of.find(self.scope, name) {
                Some(Named::Register(register, ty)) => Ok(Dst {
                    register: *register,
                    bits: ty.bits(),
                }),
                _ => Err(format!("writes to `{name}`, which is no register")),
            },
            _ => Err("has a result of a form that is not known".to_owned()),
        }
    }

    /// One or two results: `p|q`.
    pub(super) fn results(&self, at: usize) -> Result<(Dst, Dst), Unknown> {
        match self.arg(at)? {
            Arg::Pair(first, second) => Ok((self.result(first)?, self.result(second)?)),
            one => Ok((self.result(one)?, Dst::NONE)),
        }
    }

    /// A predicate, which may be negated.
    pub(super) fn test(&mut self, at: usize) -> Result<Test, Unknown> {
        match self.arg(at)?.clone() {
            Arg::Not(inner) => Ok(Test {
                src: self.value(&inner, Ty::Pred)?,
                negative: true,
            }),
            arg => Ok(Test {
                src: self.value(&arg, Ty::B32)?,
                negative: false,
            }),
        }
    }

    /// The parts of a vector; of a single operand itself.
    pub(super) fn parts(&self, at: usize) -> Result<Vec<Arg<'a>>, Unknown> {
        Ok(match self.arg(at)? {
            Arg::Vector(parts) => parts.clone(),
            one => vec![one.clone()],
        })
    }

    pub(super) fn is_vector(&self, at: usize) -> bool {
        matches!(self.args.get(at), Some(Arg::Vector(_)))
    }

    /// A memory operand: its base and offset.
    pub(super) fn memory(&mut self, at: usize) -> Result<(Src, i64), Unknown> {
        let Arg::Memory(base, offset) = self.arg(at)?.clone() else {
            return Err("has an operand in memory of a form that is not known".to_owned());
        };
        Ok((self.value(&base, Ty::U64)?, offset))
    }

    /// The parts of an operand in parentheses, if it is one.
    pub(super) fn list(&self, at: usize) -> Option<Vec<Arg<'a>>> {
        match self.args.get(at) {
            Some(Arg::List(parts)) => Some(parts.clone()),
            _ => None,
        }
    }

    /// A plain name.
    pub(super) fn word(&self, at: usize) -> Result<&'a str, Unknown> {
        match self.arg(at)? {
            Arg::Name(name, 0) => Ok(name),
            _ => Err("has an operand that is no name".to_owned()),
        }
    }
}

//! Branches and calls.

use super::words::{Unknown, Words};
use super::{Meaning, Named, Operands};
use crate::ast::Arg;
use crate::code::{Call, Carried, Op, Target};
use crate::ty::Ty;

impl<'a> Operands<'a, '_, '_> {
    /// The operation, if the instruction is of this family.
    pub(super) fn control(&mut self, words: &mut Words<'_>) -> Option<Result<Op, Unknown>> {
        words.drop(if matches!(self.name, "bra" | "brx" | "call" | "ret") {
            &["uni"]
        } else {
            &[]
        });
        let op = match self.name {
            "bra" => self
                .word(0)
                .and_then(|name| self.of.label(self.scope, name))
                .map(|to| Op::Bra { to }),
            "brx" => self.indexed(words),
            "call" => self.call(),
            "ret" => Ok(Op::Ret),
            "exit" => Ok(Op::Exit),
            "trap" => Ok(Op::Trap),
            "nanosleep" => {
                words.take("u32");
                Ok(Op::Yield)
            }
            _ => return None,
        };
        Some(op)
    }

    fn indexed(&mut self, words: &mut Words<'_>) -> Result<Op, Unknown> {
        words.take("idx");
        let list = self.word(1)?;
        let Some(Named::Targets(labels)) = self.of.find(self.scope, list).cloned() else {
            return Err(format!("names `{list}`, which is no list of labels"));
        };
        let to = labels
            .iter()
            .map(|label| self.of.label(self.scope, label))
            .collect::<Result<_, _>>()?;
        Ok(Op::Brx {
            to,
            a: self.src(0, Ty::U32)?,
        })
    }

    fn call(&mut self) -> Result<Op, Unknown> {
        let results = self.list(0);
        let at = usize::from(results.is_some());
        let name = self.word(at)?;
        let target = match (self.of.find(self.scope, name), self.of.names.get(name)) {
            (Some(Named::Register(..)), _) => {
                self.of.out.indirect = true;
                Target::Address(self.src(at, Ty::U64)?)
            }
            (_, Some(Meaning::Function(number))) => {
                self.of.out.calls.insert(*number);
                Target::Known(*number)
            }
            (_, Some(Meaning::Declared)) => Target::Absent(name.into()),
            _ => return Err(format!("calls `{name}`, which is not known")),
        };
        let inputs = self.list(at + 1).unwrap_or_default();
        let inputs = inputs
            .iter()
            .map(|arg| self.carried(arg))
            .collect::<Result<_, _>>()?;
        let outputs = results.unwrap_or_default();
        let outputs = outputs
            .iter()
            .map(|arg| match self.carried(arg)? {
                Carried::Value(..) => Ok(Carried::Into(self.result(arg)?)),
                bytes => Ok(bytes),
            })
            .collect::<Result<_, Unknown>>()?;
        Ok(Op::Call(Box::new(Call {
            target,
            inputs,
            outputs,
        })))
    }

    /// An operand of a call.
    fn carried(&mut self, arg: &Arg<'a>) -> Result<Carried, Unknown> {
        if let Arg::Name(name, 0) = arg {
            match self.of.find(self.scope, name) {
                Some(Named::Param(offset, size)) => return Ok(Carried::Bytes(*offset, *size)),
                Some(Named::Register(_, ty)) => {
                    let bytes = ty.bytes();
                    return Ok(Carried::Value(self.value(arg, Ty::B64)?, bytes));
                }
                _ => {}
            }
        }
        Ok(Carried::Value(self.value(arg, Ty::B64)?, 8))
    }
}

//! Operands.

use super::{Cursor, numbers};
use crate::ParseError;
use crate::ast::Arg;
use crate::lex::Tok;

impl<'a> Cursor<'a, '_> {
    /// One operand.
    pub(super) fn arg(&mut self) -> Result<Arg<'a>, ParseError> {
        let first = self.simple()?;
        if self.passes('|') {
            let second = self.simple()?;
            return Ok(Arg::Pair(Box::new(first), Box::new(second)));
        }
        Ok(first)
    }

    fn simple(&mut self) -> Result<Arg<'a>, ParseError> {
        let error = self.error("an operand is expected");
        match self.next() {
            Some(Tok::Mark('!')) => Ok(Arg::Not(Box::new(self.simple()?))),
            Some(Tok::Mark('{')) => Ok(Arg::Vector(self.list('}')?)),
            Some(Tok::Mark('(')) => Ok(Arg::List(self.list(')')?)),
            Some(Tok::Mark('[')) => self.memory(),
            Some(Tok::Mark('-')) => match self.next() {
                Some(Tok::Number(text)) => Ok(Arg::Number(true, text)),
                _ => Err(error),
            },
            Some(Tok::Number(text)) => Ok(Arg::Number(false, text)),
            Some(Tok::Name(name)) => {
                if let Some(Tok::Dot(part)) = self.peek() {
                    self.at += 1;
                    return Ok(Arg::Part(name, part));
                }
                Ok(Arg::Name(name, self.offset()?))
            }
            _ => Err(error),
        }
    }

    /// The operands up to the mark that ends them.
    pub(super) fn list(&mut self, end: char) -> Result<Vec<Arg<'a>>, ParseError> {
        let mut args = Vec::new();
        if self.passes(end) {
            return Ok(args);
        }
        loop {
            args.push(self.arg()?);
            if self.passes(end) {
                return Ok(args);
            }
            self.expect(',')?;
        }
    }

    /// `base]`, `base+offset]`, `name[index]]`.
    fn memory(&mut self) -> Result<Arg<'a>, ParseError> {
        let base = self.simple()?;
        let arg = match base {
            Arg::Name(name, offset) => {
                let index = if self.passes('[') {
                    let index = self.number()?;
                    self.expect(']')?;
                    i64::try_from(index).unwrap_or(0)
                } else {
                    0
                };
                Arg::Memory(Box::new(Arg::Name(name, 0)), offset.wrapping_add(index))
            }
            other => {
                let offset = self.offset()?;
                Arg::Memory(Box::new(other), offset)
            }
        };
        if self.passes(',') {
            // The coordinates of a texture: the instruction is not known here.
            return Ok(Arg::List(self.list(']')?));
        }
        self.expect(']')?;
        Ok(arg)
    }

    /// `+4`, `+-4`, `-4`, several of them, or nothing.
    pub(super) fn offset(&mut self) -> Result<i64, ParseError> {
        let mut sum = 0_i64;
        loop {
            let negative = match self.peek() {
                Some(Tok::Mark('+')) => {
                    self.at += 1;
                    self.passes('-')
                }
                Some(Tok::Mark('-')) => {
                    self.at += 1;
                    true
                }
                _ => return Ok(sum),
            };
            let error = self.error("a whole number is expected");
            let Some(Tok::Number(text)) = self.next() else {
                return Err(error);
            };
            let value = numbers::whole(text).ok_or(error)?.cast_signed();
            sum = if negative {
                sum.wrapping_sub(value)
            } else {
                sum.wrapping_add(value)
            };
        }
    }
}

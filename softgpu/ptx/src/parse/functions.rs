//! Heads of functions and kernels.

use super::Cursor;
use crate::ParseError;
use crate::ast::{Function, Linkage};
use crate::lex::Tok;

impl<'a> Cursor<'a, '_> {
    /// `.func` or `.entry`, up to the end of its body or its semicolon.
    pub(super) fn function(&mut self, linkage: Linkage) -> Result<Function<'a>, ParseError> {
        let line = self.line();
        let entry = self.next() == Some(Tok::Dot("entry"));
        while self.passes_dot("attribute") {
            self.skip_to(')')?;
        }
        let returns = if entry { Vec::new() } else { self.formals()? };
        let name = self.name()?;
        let params = self.formals()?;
        let (max_threads, exact_threads, body) = (None, None, None);
        let mut function = Function {
            name,
            entry,
            linkage,
            returns,
            params,
            max_threads,
            max_registers: None,
            exact_threads,
            body,
            line,
        };
        loop {
            match self.peek() {
                Some(Tok::Mark(';')) => {
                    self.at += 1;
                    return Ok(function);
                }
                Some(Tok::Mark('{')) => {
                    function.body = Some(self.body()?);
                    return Ok(function);
                }
                Some(Tok::Dot(word)) => {
                    self.at += 1;
                    match word {
                        "maxntid" => function.max_threads = Some(self.sides()?),
                        "reqntid" => function.exact_threads = Some(self.sides()?),
                        "noreturn" | "unique" | "explicitcluster" => {}
                        "maxnreg" => function.max_registers = Some(self.small()?),
                        "minnctapersm"
                        | "maxnctapersm"
                        | "maxclusterrank"
                        | "abi_preserve"
                        | "abi_preserve_control" => drop(self.small()?),
                        "reqnctapercluster" => drop(self.sides()?),
                        "pragma" => self.skip_to(';')?,
                        _ => return Err(self.error(&format!("`.{word}` is not known here"))),
                    }
                }
                _ => return Err(self.error("the body of a function is expected")),
            }
        }
    }

    /// One to three numbers; the missing ones are 1.
    fn sides(&mut self) -> Result<[u32; 3], ParseError> {
        let mut sides = [1; 3];
        for (at, side) in sides.iter_mut().enumerate() {
            if at > 0 && !self.passes(',') {
                break;
            }
            *side = self.small()?;
        }
        Ok(sides)
    }
}

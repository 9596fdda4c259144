//! Bodies of functions: declarations, labels and instructions.

use super::Cursor;
use crate::ParseError;
use crate::ast::{Body, Instruction, Item, Linkage, What};
use crate::lex::Tok;
use crate::ty::Ty;

/// Registers of one declaration at most.
const REGISTERS: u32 = 1 << 20;

impl<'a> Cursor<'a, '_> {
    /// `{ … }`.
    pub(super) fn body(&mut self) -> Result<Body<'a>, ParseError> {
        let mut body = Body {
            scopes: vec![0],
            items: Vec::new(),
        };
        self.expect('{')?;
        let mut scope = 0;
        loop {
            let line = self.line();
            let mut add = |what| body.items.push(Item { scope, line, what });
            match self.peek() {
                None => return Err(self.error("the end of a body is missing")),
                Some(Tok::Mark('}')) => {
                    self.at += 1;
                    if scope == 0 {
                        return Ok(body);
                    }
                    scope = body.scopes[scope];
                }
                Some(Tok::Mark('{')) => {
                    self.at += 1;
                    body.scopes.push(scope);
                    scope = body.scopes.len() - 1;
                }
                Some(Tok::Mark(';')) => self.at += 1,
                Some(Tok::Mark('@')) if self.peek_second() == Some(Tok::Mark('@')) => {
                    self.skip_line()
                }
                Some(Tok::Dot("loc" | "file")) => self.skip_line(),
                Some(Tok::Dot("pragma")) => self.skip_to(';')?,
                Some(Tok::Dot("reg")) => self.registers(&mut add)?,
                Some(Tok::Dot(_)) => {
                    let mut found = Vec::new();
                    self.variables(Linkage::Own, &mut found)?;
                    found
                        .into_iter()
                        .for_each(|variable| add(What::Variable(variable)));
                }
                Some(Tok::Name(name)) if self.peek_second() == Some(Tok::Mark(':')) => {
                    self.at += 2;
                    add(self.labelled(name)?);
                }
                _ => add(What::Instruction(self.instruction()?)),
            }
        }
    }

    /// Parses the directive that follows `name:`; else it is a label.
    fn labelled(&mut self, name: &'a str) -> Result<What<'a>, ParseError> {
        if self.passes_dot("branchtargets") {
            let mut labels = vec![self.name()?];
            while self.passes(',') {
                labels.push(self.name()?);
            }
            self.expect(';')?;
            return Ok(What::Targets(name, labels));
        }
        if self.passes_dot("callprototype") {
            self.skip_to(';')?;
            return Ok(What::Prototype(name));
        }
        if self.passes_dot("calltargets") {
            self.skip_to(';')?;
        }
        Ok(What::Label(name))
    }

    /// `.reg .b32 %r<8>, %x;`
    fn registers(&mut self, add: &mut impl FnMut(What<'a>)) -> Result<(), ParseError> {
        self.at += 1;
        let error = self.error("a type of registers is expected");
        let Some(Tok::Dot(word)) = self.next() else {
            return Err(error);
        };
        let ty = Ty::named(word).ok_or(error)?;
        loop {
            let name = self.name()?;
            let count = if self.passes('<') {
                let count = self.small()?;
                self.expect('>')?;
                if count > REGISTERS {
                    return Err(self.error("a smaller number of registers is expected"));
                }
                Some(count)
            } else {
                None
            };
            add(What::Register(ty, name, count));
            if self.passes(';') {
                return Ok(());
            }
            self.expect(',')?;
        }
    }

    fn instruction(&mut self) -> Result<Instruction<'a>, ParseError> {
        let guard = if self.passes('@') {
            let negative = self.passes('!');
            Some((self.name()?, negative))
        } else {
            None
        };
        let name = self.name()?;
        let mut words = Vec::new();
        while let Some(Tok::Dot(word)) = self.peek() {
            words.push(word);
            self.at += 1;
        }
        let mut args = Vec::new();
        if !self.passes(';') {
            loop {
                args.push(self.arg()?);
                if self.passes(';') {
                    break;
                }
                self.expect(',')?;
            }
        }
        Ok(Instruction {
            guard,
            name,
            words,
            args,
        })
    }
}

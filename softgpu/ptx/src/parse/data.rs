//! Declarations of variables and parameters.

use super::Cursor;
use crate::ParseError;
use crate::ast::{Init, Linkage, Space, Variable};
use crate::lex::Tok;
use crate::ty::Ty;

/// Bytes of a handle of a texture, a surface or a sampler.
const HANDLE: u32 = 8;

impl<'a> Cursor<'a, '_> {
    /// `.space … name, name;` with initial values.
    pub(super) fn variables(
        &mut self,
        linkage: Linkage,
        into: &mut Vec<Variable<'a>>,
    ) -> Result<(), ParseError> {
        let shape = self.shape()?;
        loop {
            let mut variable = self.declared(&shape, linkage)?;
            if self.passes('=') {
                self.initial(&mut variable.init)?;
            }
            into.push(variable);
            if !self.passes(',') {
                break;
            }
        }
        self.expect(';')
    }

    /// `(.param .b64 a, .reg .b32 b)`, of a function or a prototype; nothing if there is no list.
    pub(super) fn formals(&mut self) -> Result<Vec<Variable<'a>>, ParseError> {
        let mut formals = Vec::new();
        if !self.passes('(') || self.passes(')') {
            return Ok(formals);
        }
        loop {
            let shape = self.shape()?;
            formals.push(self.declared(&shape, Linkage::Own)?);
            if self.passes(')') {
                return Ok(formals);
            }
            self.expect(',')?;
        }
    }

    /// The space, the alignment and the type of variables.
    fn shape(&mut self) -> Result<Variable<'a>, ParseError> {
        let line = self.line();
        let mut space = Space::Global;
        let (mut ty, mut vector, mut align, mut managed) = (None, 1, 0, false);
        let mut handle = false;
        while let Some(Tok::Dot(word)) = self.peek() {
            self.at += 1;
            match word {
                "reg" => space = Space::Reg,
                "global" => space = Space::Global,
                "const" => space = Space::Const,
                "shared" => space = Space::Shared,
                "local" => space = Space::Local,
                "param" => space = Space::Param,
                "align" => align = self.small()?,
                "v2" => vector = 2,
                "v4" => vector = 4,
                "attribute" => {
                    managed = self
                        .tokens
                        .get(self.at + 1)
                        .is_some_and(|token| token.tok == Tok::Dot("managed"));
                    self.skip_to(')')?;
                }
                // The target of a pointer, which changes nothing.
                "ptr" => {
                    while let Some(Tok::Dot("global" | "const" | "shared" | "local" | "param")) =
                        self.peek()
                    {
                        self.at += 1;
                    }
                    if self.passes_dot("align") {
                        self.small()?;
                    }
                }
                "texref" | "surfref" | "samplerref" => (ty, handle) = (Some(Ty::B64), true),
                "tex" => (space, ty) = (Space::Global, Some(ty.unwrap_or(Ty::B64))),
                "b128" => (ty, vector) = (Some(Ty::B64), 2 * vector),
                word => match Ty::named(word) {
                    Some(found) => ty = Some(found),
                    None => return Err(self.error(&format!("`.{word}` is not known here"))),
                },
            }
        }
        let ty = ty.ok_or_else(|| self.error("a type is expected"))?;
        let stride = if handle { HANDLE } else { ty.bytes() * vector };
        if !align.is_power_of_two() && align != 0 {
            return Err(self.error("an alignment is a power of two"));
        }
        let align = if align == 0 { stride } else { align };
        let (name, linkage, size, init) = ("", Linkage::Own, None, Vec::new());
        Ok(Variable {
            name,
            space,
            linkage,
            ty,
            stride,
            align,
            size,
            managed,
            init,
            line,
        })
    }

    /// A name of this shape, with its dimensions.
    fn declared(
        &mut self,
        shape: &Variable<'a>,
        linkage: Linkage,
    ) -> Result<Variable<'a>, ParseError> {
        let name = self.name()?;
        let mut size = Some(u64::from(shape.stride));
        while self.passes('[') {
            if self.passes(']') {
                size = None;
                continue;
            }
            let count = self.number()?;
            let error = self.error("an array is too large");
            size = match size {
                Some(size) => Some(
                    size.checked_mul(count)
                        .filter(|size| *size <= 1 << 40)
                        .ok_or(error)?,
                ),
                None => None,
            };
            self.expect(']')?;
        }
        Ok(Variable {
            name,
            linkage,
            size,
            ..shape.clone()
        })
    }

    /// An initial value, flattened.
    fn initial(&mut self, into: &mut Vec<Init<'a>>) -> Result<(), ParseError> {
        if self.passes('{') {
            if self.passes('}') {
                return Ok(());
            }
            loop {
                self.initial(into)?;
                if self.passes('}') {
                    return Ok(());
                }
                self.expect(',')?;
            }
        }
        let negative = self.passes('-');
        let error = self.error("an initial value is expected");
        match self.next() {
            Some(Tok::Number(_)) if self.peek() == Some(Tok::Mark('(')) => {
                Err(self.error("a part of an address as an initial value is not supported"))
            }
            Some(Tok::Number(text)) => {
                into.push(Init::Number(negative, text));
                Ok(())
            }
            Some(Tok::Name("generic")) if self.passes('(') => {
                let name = self.name()?;
                let inside = self.offset()?;
                self.expect(')')?;
                let outside = self.offset()?;
                into.push(Init::Address(name, inside.wrapping_add(outside)));
                Ok(())
            }
            Some(Tok::Name(name)) => {
                let offset = self.offset()?;
                into.push(Init::Address(name, offset));
                Ok(())
            }
            _ => Err(error),
        }
    }
}

//! From text to [`ast`](crate::ast). One text may hold several modules, one after the other, as a
//! linker joins them.

mod args;
mod body;
mod data;
mod functions;
pub(crate) mod numbers;

use crate::ParseError;
use crate::ast::{Function, Linkage, Variable};
use crate::lex::{Tok, Token, tokens};

/// Everything in a text.
#[derive(Debug, Default)]
pub(crate) struct Unit<'a> {
    pub(crate) version: (u32, u32),
    pub(crate) target: &'a str,
    pub(crate) functions: Vec<Function<'a>>,
    pub(crate) variables: Vec<Variable<'a>>,
}

/// Reads a text.
///
/// # Errors
/// The first thing that is not PTX, with its line.
pub(crate) fn unit(text: &str) -> Result<Unit<'_>, ParseError> {
    let tokens = tokens(text)?;
    let mut cursor = Cursor {
        tokens: &tokens,
        at: 0,
    };
    let mut unit = Unit::default();
    if cursor.peek() != Some(Tok::Dot("version")) {
        return Err(cursor.error("a module begins with .version"));
    }
    while cursor.peek().is_some() {
        cursor.top(&mut unit)?;
    }
    Ok(unit)
}

/// A place in the tokens.
struct Cursor<'a, 't> {
    tokens: &'t [Token<'a>],
    at: usize,
}

impl<'a> Cursor<'a, '_> {
    fn peek(&self) -> Option<Tok<'a>> {
        self.tokens.get(self.at).map(|token| token.tok)
    }

    fn peek_second(&self) -> Option<Tok<'a>> {
        self.tokens.get(self.at + 1).map(|token| token.tok)
    }

    /// The line of the next token, or of the last one.
    fn line(&self) -> u32 {
        let here = self.tokens.get(self.at).or_else(|| self.tokens.last());
        here.map_or(1, |token| token.line)
    }

    fn error(&self, message: &str) -> ParseError {
        let found = match self.peek() {
            None => "the end".to_owned(),
            Some(Tok::Name(word) | Tok::Number(word)) => format!("`{word}`"),
            Some(Tok::Dot(word)) => format!("`.{word}`"),
            Some(Tok::Text(text)) => format!("\"{text}\""),
            Some(Tok::Mark(mark)) => format!("`{mark}`"),
        };
        ParseError::new(self.line(), &format!("{message}; found {found}"))
    }

    fn next(&mut self) -> Option<Tok<'a>> {
        let next = self.peek();
        self.at += 1;
        next
    }

    /// Passes this mark if it is next.
    fn passes(&mut self, mark: char) -> bool {
        let is = self.peek() == Some(Tok::Mark(mark));
        self.at += usize::from(is);
        is
    }

    /// Passes this directive if it is next.
    fn passes_dot(&mut self, word: &str) -> bool {
        let is = self.peek() == Some(Tok::Dot(word));
        self.at += usize::from(is);
        is
    }

    fn expect(&mut self, mark: char) -> Result<(), ParseError> {
        if self.passes(mark) {
            Ok(())
        } else {
            Err(self.error(&format!("`{mark}` is expected")))
        }
    }

    fn name(&mut self) -> Result<&'a str, ParseError> {
        if let Some(Tok::Name(name)) = self.peek() {
            self.at += 1;
            Ok(name)
        } else {
            Err(self.error("a name is expected"))
        }
    }

    /// A number without a sign.
    fn number(&mut self) -> Result<u64, ParseError> {
        let error = self.error("a whole number is expected");
        match self.next() {
            Some(Tok::Number(text)) => numbers::whole(text).ok_or(error),
            _ => Err(error),
        }
    }

    fn small(&mut self) -> Result<u32, ParseError> {
        let error = self.error("a smaller number is expected");
        u32::try_from(self.number()?).map_err(|_| error)
    }

    /// Passes the rest of a line.
    fn skip_line(&mut self) {
        let line = self.line();
        while self
            .tokens
            .get(self.at)
            .is_some_and(|token| token.line == line)
        {
            self.at += 1;
        }
    }

    /// Passes everything up to and including this mark.
    fn skip_to(&mut self, mark: char) -> Result<(), ParseError> {
        while let Some(next) = self.next() {
            if next == Tok::Mark(mark) {
                return Ok(());
            }
        }
        Err(self.error(&format!("`{mark}` is expected")))
    }

    /// One declaration outside functions.
    fn top(&mut self, unit: &mut Unit<'a>) -> Result<(), ParseError> {
        if self.passes(';') {
            return Ok(());
        }
        let mut linkage = Linkage::Own;
        loop {
            let Some(Tok::Dot(word)) = self.peek() else {
                if self.peek() == Some(Tok::Mark('@')) {
                    // Debug information of old compilers.
                    self.skip_line();
                    return Ok(());
                }
                return Err(self.error("a directive is expected"));
            };
            match word {
                "version" => {
                    self.at += 1;
                    let error = self.error("a version is expected");
                    let Some(Tok::Number(text)) = self.next() else {
                        return Err(error);
                    };
                    let (major, minor) = text.split_once('.').ok_or(error)?;
                    let part = |text: &str| text.parse().unwrap_or(0);
                    unit.version = unit.version.max((part(major), part(minor)));
                    return Ok(());
                }
                "target" => {
                    self.at += 1;
                    unit.target = self.name()?;
                    while self.passes(',') {
                        self.name()?;
                    }
                    return Ok(());
                }
                "address_size" => {
                    self.at += 1;
                    if self.number()? != 64 {
                        return Err(self.error("addresses have 64 bits"));
                    }
                    return Ok(());
                }
                "file" | "loc" => {
                    self.skip_line();
                    return Ok(());
                }
                "section" => {
                    self.skip_to('}')?;
                    return Ok(());
                }
                "pragma" | "alias" => {
                    self.skip_to(';')?;
                    return Ok(());
                }
                "visible" => linkage = Linkage::Visible,
                "extern" => linkage = Linkage::Extern,
                "weak" | "common" => linkage = Linkage::Weak,
                "func" | "entry" => {
                    unit.functions.push(self.function(linkage)?);
                    return Ok(());
                }
                "global" | "const" | "shared" | "tex" => {
                    self.variables(linkage, &mut unit.variables)?;
                    return Ok(());
                }
                _ => return Err(self.error("this directive is not known")),
            }
            self.at += 1;
        }
    }
}

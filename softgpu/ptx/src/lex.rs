//! Tokens of PTX text. A token borrows from the text and knows its line.

use crate::ParseError;

/// A token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tok<'a> {
    /// A name, also one that begins with `%`, `$` or `_`.
    Name(&'a str),
    /// A name after a dot, without the dot.
    Dot(&'a str),
    /// A number as written, without a sign.
    Number(&'a str),
    /// A string, without its quotes.
    Text(&'a str),
    /// Any other character.
    Mark(char),
}

/// A token and the line it is on, from 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Token<'a> {
    pub(crate) tok: Tok<'a>,
    pub(crate) line: u32,
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$')
}

/// Divides a text into tokens; comments and white space are dropped.
///
/// # Errors
/// A comment or a string without an end, or a character that PTX does not have.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let (mut at, mut line) = (0, 1);
    let run = |from: usize, holds: &dyn Fn(u8) -> bool| {
        let end = bytes[from..].iter().position(|byte| !holds(*byte));
        end.map_or(bytes.len(), |length| from + length)
    };
    while let Some(&byte) = bytes.get(at) {
        let from = at;
        let next = bytes.get(at + 1).copied().unwrap_or(0);
        let tok = match byte {
            b'\n' => {
                line += 1;
                at += 1;
                continue;
            }
            byte if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b'/' if next == b'/' => {
                at = run(at, &|byte| byte != b'\n');
                continue;
            }
            b'/' if next == b'*' => {
                let rest = text[at + 2..].find("*/");
                let end =
                    at + 4 + rest.ok_or_else(|| ParseError::new(line, "a comment has no end"))?;
                line += lines_of(&text[at..end]);
                at = end;
                continue;
            }
            b'"' => {
                let end = run(at + 1, &|byte| byte != b'"');
                if end == bytes.len() {
                    return Err(ParseError::new(line, "a string has no end"));
                }
                at = end + 1;
                Tok::Text(&text[from + 1..end])
            }
            b'.' if is_name(next) => {
                // `L1::evict_last` is one word.
                at = run(at + 1, &|byte| is_name(byte) || byte == b':');
                while bytes[at - 1] == b':' && !text[from..at].contains("::") {
                    at -= 1;
                }
                Tok::Dot(&text[from + 1..at])
            }
            byte if byte.is_ascii_digit() => {
                at = number_end(bytes, at);
                Tok::Number(&text[from..at])
            }
            byte if is_name(byte) || (byte == b'%' && is_name(next)) => {
                at = run(at + 1, &is_name);
                Tok::Name(&text[from..at])
            }
            byte if byte.is_ascii_graphic() => {
                at += 1;
                Tok::Mark(char::from(byte))
            }
            _ => return Err(ParseError::new(line, "a character that PTX does not have")),
        };
        found.push(Token { tok, line });
        if let Tok::Text(text) = tok {
            line += lines_of(text);
        }
    }
    Ok(found)
}

fn lines_of(text: &str) -> u32 {
    text.bytes()
        .filter(|byte| *byte == b'\n')
        .fold(0, |sum, _| sum + 1)
}

/// The end of the number that begins at `at`.
fn number_end(bytes: &[u8], at: usize) -> usize {
    let digits = |mut at: usize| {
        while bytes.get(at).is_some_and(|byte| is_name(*byte)) {
            at += 1;
        }
        at
    };
    let mut end = digits(at);
    let decimal = bytes[at..end].iter().all(u8::is_ascii_digit);
    if decimal
        && bytes.get(end) == Some(&b'.')
        && bytes.get(end + 1).is_some_and(u8::is_ascii_digit)
    {
        end = digits(end + 1);
    }
    let exponent = matches!(bytes.get(end - 1), Some(b'e' | b'E'))
        && matches!(bytes.get(end), Some(b'+' | b'-'));
    let hexadecimal = bytes
        .get(at + 1)
        .is_some_and(|byte| matches!(byte, b'x' | b'X' | b'f' | b'F' | b'd' | b'D'));
    if exponent && !hexadecimal {
        digits(end + 1)
    } else {
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Tok<'_>> {
        tokens(text)
            .unwrap()
            .iter()
            .map(|token| token.tok)
            .collect()
    }

    #[test]
    fn a_text_is_divided_into_its_words() {
        use Tok::{Dot, Mark, Name, Number};
        assert_eq!(
            words("ld.global.L1::evict_last.v2.f32 {%f1}, [%rd1+-8]; // x\n/* y */ $L__1: bra"),
            [
                Name("ld"),
                Dot("global"),
                Dot("L1::evict_last"),
                Dot("v2"),
                Dot("f32"),
                Mark('{'),
                Name("%f1"),
                Mark('}'),
                Mark(','),
                Mark('['),
                Name("%rd1"),
                Mark('+'),
                Mark('-'),
                Number("8"),
                Mark(']'),
                Mark(';'),
                Name("$L__1"),
                Mark(':'),
                Name("bra"),
            ]
        );
        assert_eq!(
            words("0f3F800000 1.5 1.5e-3 0x1F 12U"),
            ["0f3F800000", "1.5", "1.5e-3", "0x1F", "12U"].map(Number)
        );
        assert_eq!(words("%tid.x 8.5"), [Name("%tid"), Dot("x"), Number("8.5")]);
    }

    #[test]
    fn lines_are_counted_also_in_comments_and_what_has_no_end_is_refused() {
        let found = tokens("a /* \n\n */ b\nc").unwrap();
        assert_eq!(
            found.iter().map(|token| token.line).collect::<Vec<_>>(),
            [1, 3, 4]
        );
        assert_eq!(tokens("a\n/* b").unwrap_err().line, 2);
        assert!(tokens("\"a").is_err());
        assert!(tokens("é").is_err());
    }
}

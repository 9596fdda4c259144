//! What the text of a PTX module says of its functions and variables, without the functions'
//! bodies: names, parameters, limits of threads, initial values.

use std::collections::HashMap;

use super::variables::Variable;

/// What a PTX module declares.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Header {
    /// The architecture of `.target`: 90 for `sm_90`.
    pub(super) target: i32,
    /// Entries by name.
    pub(super) entries: HashMap<String, Entry>,
    /// Variables of the state spaces `.global` and `.const`.
    pub(super) variables: Vec<Variable>,
}

/// An entry, which is a function that can be launched.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Entry {
    /// Offset and size of each parameter.
    pub(super) params: Vec<(usize, usize)>,
    /// The most threads of a block, if the text says so.
    pub(super) threads: Option<i32>,
}

/// Whether the bytes begin as a PTX module does: white space and comments, then `.version`. Reads
/// no byte after the first that contradicts it.
pub fn is_ptx(mut next: impl FnMut() -> u8) -> bool {
    const BEGIN: &[u8] = b".version";
    loop {
        match next() {
            byte if byte.is_ascii_whitespace() => {}
            b'/' => {
                let ended = match next() {
                    b'/' => skip(&mut next, |_, byte| byte == b'\n'),
                    b'*' => skip(&mut next, |before, byte| (before, byte) == (b'*', b'/')),
                    _ => false,
                };
                if !ended {
                    return false;
                }
            }
            byte => return byte == BEGIN[0] && BEGIN[1..].iter().all(|wanted| next() == *wanted),
        }
    }
}

/// Skips a comment; false if the text ends in it.
fn skip(next: &mut impl FnMut() -> u8, ends: impl Fn(u8, u8) -> bool) -> bool {
    let mut before = 0;
    loop {
        match next() {
            0 => return false,
            byte if ends(before, byte) => return true,
            byte => before = byte,
        }
    }
}

impl Header {
    /// Reads a module; what it cannot read it leaves out.
    pub(super) fn read(text: &str) -> Self {
        let words = words(text);
        let mut header = Self::default();
        for statement in Statements(&words) {
            header.add(statement);
        }
        header
    }

    fn add(&mut self, statement: &[&str]) {
        let after = |word: &str| {
            let at = statement.iter().position(|found| *found == word)?;
            Some(&statement[at + 1..])
        };
        if let Some([target, ..]) = after(".target") {
            let digits = target.trim_start_matches(|c: char| !c.is_ascii_digit());
            let digits = digits.trim_end_matches(|c: char| !c.is_ascii_digit());
            self.target = digits.parse().unwrap_or(0);
        } else if let Some([name, rest @ ..]) = after(".entry") {
            self.entries.insert((*name).to_owned(), Entry::read(rest));
        } else if !statement.contains(&".func")
            && !statement.contains(&".extern")
            && let Some(declared) = after(".global").or_else(|| after(".const"))
        {
            self.variables.extend(variable(declared));
        }
    }
}

impl Entry {
    /// Reads what follows an entry's name.
    fn read(rest: &[&str]) -> Self {
        let (params, after) = match rest {
            ["(", inner @ ..] => {
                let end = inner.iter().position(|word| *word == ")");
                inner.split_at(end.unwrap_or(inner.len()))
            }
            _ => (&[][..], rest),
        };
        let mut end = 0_usize;
        let place = |param: &[&str]| {
            let (align, size, _, _) = declared(param)?;
            let offset = end.checked_next_multiple_of(align)?;
            end = offset.checked_add(size)?;
            Some((offset, size))
        };
        let all: Option<Vec<_>> = params
            .split(|word| *word == ",")
            .filter(|param| !param.is_empty())
            .map(place)
            .collect();
        Self {
            params: all.unwrap_or_default(),
            threads: [".maxntid", ".reqntid"].iter().find_map(|directive| {
                let at = after.iter().position(|word| word == directive)?;
                let sides = after[at + 1..]
                    .iter()
                    .take_while(|word| !word.starts_with('.'));
                let mut sides = sides.filter_map(|word| word.parse::<i32>().ok());
                sides.try_fold(1_i32, |product, side| product.checked_mul(side))
            }),
        }
    }
}

/// Alignment, size, name and what follows of a declaration: `.align 8 .b8 name[24]` or `.u32 name`.
/// `None` for a type that has no size here.
fn declared<'a>(words: &'a [&'a str]) -> Option<(usize, usize, &'a str, &'a [&'a str])> {
    let (mut align, mut size, mut pointee, mut at) = (None, None, false, 0);
    while let Some(word) = words.get(at).filter(|word| word.starts_with('.')) {
        if *word == ".align" {
            // After `.ptr` it is the alignment of what the parameter points to.
            align = align.or(words.get(at + 1)?.parse().ok().filter(|_| !pointee));
            at += 1;
        } else if *word == ".ptr" {
            pointee = true;
        } else if *word == ".attribute" {
            // `.attribute(.managed)`: managed memory belongs to no context, and is not modelled.
            return None;
        } else if let Some(bytes) = width(word) {
            size = Some(bytes);
        }
        at += 1;
    }
    let (element, name) = (size?, words.get(at)?);
    let mut rest = &words[at + 1..];
    let mut count = Some(1_usize);
    while let ["[", dimension, after @ ..] = rest {
        match dimension.parse::<usize>() {
            Ok(number) => {
                count = count.and_then(|count| count.checked_mul(number));
                rest = after.strip_prefix(&["]"]).unwrap_or(after);
            }
            // `name[]`: the initial values say how many there are.
            Err(_) => {
                count = None;
                rest = after;
            }
        }
    }
    let count =
        count.or_else(|| Some(rest.iter().filter(|word| number(word).is_some()).count()))?;
    let align = align.unwrap_or(element);
    let legal = align.is_power_of_two() && align <= 1 << 12;
    Some((
        legal.then_some(align)?,
        element.checked_mul(count)?,
        name,
        rest,
    ))
}

/// A variable from what follows its state space.
fn variable(words: &[&str]) -> Option<Variable> {
    let (align, size, name, rest) = declared(words)?;
    let bytes = words.iter().find_map(|word| width(word))?;
    let mut initial = Vec::new();
    if let ["=", values @ ..] = rest {
        // An address as an initial value is left out: its place stays 0.
        let flat = values
            .iter()
            .filter(|word| !matches!(**word, "{" | "}" | ","));
        for word in flat {
            let value = number(word).unwrap_or(0).to_le_bytes();
            initial.extend_from_slice(value.get(..bytes)?);
        }
        initial.truncate(size);
    }
    Some(Variable {
        name: name.to_owned(),
        size,
        align,
        initial,
    })
}

/// The size of a type's values.
fn width(word: &str) -> Option<usize> {
    let digits = word.strip_prefix('.')?.trim_start_matches("bf");
    let digits = digits.trim_start_matches(['b', 'u', 's', 'f']);
    Some(match digits {
        "8" => 1,
        "16" => 2,
        "32" | "16x2" => 4,
        "64" => 8,
        "128" => 16,
        _ => return None,
    })
}

/// A number as its bits: decimal, hexadecimal, octal, `0f` and `0d` with the bits of a float.
fn number(word: &str) -> Option<u64> {
    let (negative, digits) = match word.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, word),
    };
    let digits = digits.trim_end_matches('U');
    let lower = digits.to_ascii_lowercase();
    let value = match lower.as_bytes() {
        [b'0', b'x' | b'f' | b'd', ..] => u64::from_str_radix(&lower[2..], 16).ok()?,
        [b'0', b'0'..=b'7', ..] => u64::from_str_radix(&lower[1..], 8).ok()?,
        [b'0'..=b'9', ..] => lower.parse().ok()?,
        _ => return None,
    };
    Some(if negative {
        value.wrapping_neg()
    } else {
        value
    })
}

/// The statements outside bodies, in order. A body `{ … }` of a function ends its statement.
struct Statements<'a>(&'a [&'a str]);

impl<'a> Iterator for Statements<'a> {
    type Item = &'a [&'a str];

    fn next(&mut self) -> Option<Self::Item> {
        let words = self.0;
        if words.is_empty() {
            return None;
        }
        // `.version`, `.target` and `.address_size` end where the next directive begins.
        if [".version", ".target", ".address_size"].contains(&words[0]) {
            let end = words[1..].iter().position(|word| word.starts_with('.'));
            let (statement, rest) = words.split_at(end.map_or(words.len(), |end| end + 1));
            self.0 = rest;
            return Some(statement);
        }
        let end = words
            .iter()
            .position(|word| matches!(*word, ";" | "{" | "="));
        let Some(at) = end else {
            self.0 = &[];
            return Some(words);
        };
        let (statement, rest) = match words[at] {
            "{" => (&words[..at], body(&words[at..])),
            _ => {
                let end = words[at..].iter().position(|word| *word == ";");
                let end = end.map_or(words.len(), |end| at + end);
                (&words[..end], &words[(end + 1).min(words.len())..])
            }
        };
        self.0 = rest;
        Some(statement)
    }
}

/// What follows a body.
fn body<'a>(words: &'a [&'a str]) -> &'a [&'a str] {
    let mut depth = 0_usize;
    for (at, word) in words.iter().enumerate() {
        match *word {
            "{" => depth += 1,
            "}" if depth == 1 => return &words[at + 1..],
            "}" => depth -= 1,
            _ => {}
        }
    }
    &[]
}

/// The words of a text without comments and strings: names, numbers and directives, and each other
/// character alone.
fn words(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.');
    let until = |from: usize, ends: &[u8]| {
        let found = bytes[from..].windows(ends.len()).position(|at| at == ends);
        found.map_or(bytes.len(), |at| from + at + ends.len())
    };
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let next = match &bytes[at..] {
            [b'/', b'/', ..] => until(at, b"\n"),
            [b'/', b'*', ..] => until(at + 2, b"*/"),
            [b'"', ..] => until(at + 1, b"\""),
            [byte, ..] if !byte.is_ascii_graphic() => at + 1,
            [first, rest @ ..] => {
                // A dot begins a word, except in a number.
                let digit = |at: usize| rest.get(at).is_some_and(u8::is_ascii_digit);
                let more = (0..rest.len())
                    .take_while(|at| part(rest[*at]) && (rest[*at] != b'.' || digit(*at + 1)));
                let joined = part(*first) || (*first == b'-' && digit(0));
                let end = at + 1 + if joined { more.count() } else { 0 };
                found.push(&text[at..end]);
                end
            }
            [] => break,
        };
        at = next;
    }
    found
}

#[cfg(test)]
#[path = "header_tests.rs"]
mod tests;

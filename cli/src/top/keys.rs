//! The bytes that a terminal sends for keys.

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    /// Control and C.
    Interrupt,
}

/// The keys in what was read at once. An escape that nothing follows is the key of that name;
/// sequences that are not known mean nothing.
pub(super) fn parse(bytes: &[u8]) -> Vec<Key> {
    let text = String::from_utf8_lossy(bytes);
    let (mut keys, mut rest) = (Vec::new(), text.as_ref());
    while let Some(first) = rest.chars().next() {
        let (key, length) = match first {
            '\u{1b}' => sequence(rest),
            '\r' | '\n' => (Some(Key::Enter), 1),
            '\u{7f}' | '\u{8}' => (Some(Key::Backspace), 1),
            '\u{3}' => (Some(Key::Interrupt), 1),
            one if one.is_control() || one == char::REPLACEMENT_CHARACTER => (None, one.len_utf8()),
            one => (Some(Key::Char(one)), one.len_utf8()),
        };
        keys.extend(key);
        rest = rest.get(length..).unwrap_or("");
    }
    keys
}

/// An escape sequence, or the escape key, and how long it is.
fn sequence(text: &str) -> (Option<Key>, usize) {
    const KNOWN: [(&str, Key); 14] = [
        ("\u{1b}[A", Key::Up),
        ("\u{1b}OA", Key::Up),
        ("\u{1b}[B", Key::Down),
        ("\u{1b}OB", Key::Down),
        ("\u{1b}[5~", Key::PageUp),
        ("\u{1b}[6~", Key::PageDown),
        ("\u{1b}[H", Key::Home),
        ("\u{1b}OH", Key::Home),
        ("\u{1b}[1~", Key::Home),
        ("\u{1b}[7~", Key::Home),
        ("\u{1b}[F", Key::End),
        ("\u{1b}OF", Key::End),
        ("\u{1b}[4~", Key::End),
        ("\u{1b}[8~", Key::End),
    ];
    if let Some((known, key)) = KNOWN.iter().find(|(known, _)| text.starts_with(known)) {
        return (Some(*key), known.len());
    }
    let Some(body) = text.strip_prefix("\u{1b}[") else {
        return (Some(Key::Escape), 1);
    };
    let end = body.find(|one: char| ('@'..='~').contains(&one));
    (None, end.map_or(text.len(), |end| 2 + end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart_also_when_they_come_together() {
        assert_eq!(
            parse(b"q\x1b[A\x1b[6~\r\x7f\x03"),
            [
                Key::Char('q'),
                Key::Up,
                Key::PageDown,
                Key::Enter,
                Key::Backspace,
                Key::Interrupt
            ]
        );
        assert_eq!(parse("é".as_bytes()), [Key::Char('é')]);
    }

    #[test]
    fn an_escape_alone_is_a_key_and_unknown_sequences_are_none() {
        assert_eq!(parse(b"\x1b"), [Key::Escape]);
        assert_eq!(parse(b"\x1b[1;5Cx"), [Key::Char('x')]);
        assert_eq!(parse(b"\x1b[200"), []);
        assert_eq!(parse(b"\x01\xff"), []);
    }
}

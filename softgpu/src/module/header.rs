//! Telling a PTX text from other images.

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

#[cfg(test)]
#[path = "header_tests.rs"]
mod tests;

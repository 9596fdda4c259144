//! `/etc/ld.so.preload`: what an image's own file names, ld.so(8).

use gpushare_protocol::injection::LIBRARY;

use crate::Refusal;

/// Bytes of an image's own file that are read.
pub const MOST: usize = 16 << 10;

/// The libraries that an image's own file names, but for ours: separated by white space or colons,
/// comments from `#` to the line's end.
///
/// # Errors
/// If it is longer than [`MOST`], or no text.
pub fn own_lines(file: &[u8]) -> Result<Vec<String>, Refusal> {
    let refuse = |what: &str| {
        Refusal(format!(
            "the image's own /etc/ld.so.preload {what}; accepted: the paths of libraries, up to 16 KiB"
        ))
    };
    if file.len() > MOST {
        return Err(refuse("is longer than 16 KiB"));
    }
    let text = std::str::from_utf8(file).map_err(|_| refuse("is no UTF-8 text"))?;
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or(""));
    let names = lines.flat_map(|line| line.split([' ', '\t', ':', '\r']));
    let names: Vec<String> = names
        .filter(|name| !name.is_empty() && *name != LIBRARY)
        .map(str::to_owned)
        .collect();
    match names.iter().any(|name| name.chars().any(char::is_control)) {
        true => Err(refuse("has control characters")),
        false => Ok(names),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn an_images_own_libraries_are_kept_in_their_order() {
        let file = format!("/a.so /b.so:/c.so # /d.so\n\n{LIBRARY}\n\t/e.so\r\n");
        assert_eq!(
            own_lines(file.as_bytes()).unwrap(),
            ["/a.so", "/b.so", "/c.so", "/e.so"]
        );
        assert!(own_lines(b"").unwrap().is_empty());
    }

    #[test]
    fn what_is_no_list_of_libraries_is_refused() {
        for file in [&b"/a\0b"[..], b"\xff\xfe", b"/a\x1b[31m", &[b'/'; MOST + 1]] {
            own_lines(file).unwrap_err();
        }
    }
}

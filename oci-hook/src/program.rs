//! How a container's first program is linked: whether a library can be preloaded into it.

use gpushare_protocol::wire::Linkage;

use crate::rootfs::Rootfs;

/// Bytes of a program in which its header and its interpreter's name are looked for. Most have both
/// in the first.
const HEADS: [u64; 2] = [4 << 10, 64 << 10];
/// The type of a program header that names the dynamic linker, elf(5).
const PT_INTERP: u32 = 3;

/// Looks at the program that starts first, found as a shell would find it; a script's interpreter
/// counts as the program.
#[must_use]
pub fn linkage(rootfs: &Rootfs, name: &str, folders: &[String]) -> Linkage {
    let of = |bytes: u64| {
        let mut head = found(rootfs, name, folders, bytes);
        if let Some(interpreter) = head.as_deref().and_then(interpreter_of_script) {
            head = rootfs.head(&interpreter, bytes);
        }
        head.map_or(Linkage::Unknown, |head| of_head(&head))
    };
    let mut linkages = HEADS.into_iter().map(of);
    let known = linkages.find(|linkage| *linkage != Linkage::Unknown);
    known.unwrap_or(Linkage::Unknown)
}

fn found(rootfs: &Rootfs, name: &str, folders: &[String], bytes: u64) -> Option<Vec<u8>> {
    if name.contains('/') {
        return rootfs.head(name, bytes);
    }
    let paths = folders.iter().map(|folder| format!("{folder}/{name}"));
    paths.filter_map(|path| rootfs.head(&path, bytes)).next()
}

fn interpreter_of_script(head: &[u8]) -> Option<String> {
    let line = head
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let line = std::str::from_utf8(line).ok()?;
    line.split_ascii_whitespace().next().map(str::to_owned)
}

/// By the beginning of an ELF file of 64 bits, little endian.
fn of_head(head: &[u8]) -> Linkage {
    let interpreter = match interpreter(head) {
        Some(Some(interpreter)) => interpreter,
        Some(None) => return Linkage::Static,
        None => return Linkage::Unknown,
    };
    let name = interpreter.rsplit('/').next().unwrap_or("");
    if name.starts_with("ld-musl-") {
        Linkage::Musl
    } else if name.starts_with("ld-linux") || name.starts_with("ld64.so") || name == "ld.so.1" {
        Linkage::Glibc
    } else {
        Linkage::Unknown
    }
}

/// The dynamic linker that a program names; `Some(None)` if it names none, `None` if it is no
/// program that is understood.
fn interpreter(head: &[u8]) -> Option<Option<String>> {
    let word = |at: usize, bytes: usize| -> Option<usize> {
        let part = head.get(at..at.checked_add(bytes)?)?;
        let value = part
            .iter()
            .rev()
            .fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        usize::try_from(value).ok()
    };
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (word(32, 8)?, word(54, 2)?, word(56, 2)?);
    for number in 0..count {
        let at = table.checked_add(number.checked_mul(size)?)?;
        if u32::try_from(word(at, 4)?).ok()? != PT_INTERP {
            continue;
        }
        let (offset, length) = (word(at + 8, 8)?, word(at + 32, 8)?);
        let name = head.get(offset..offset.checked_add(length)?)?;
        let name = name.split(|byte| *byte == 0).next()?;
        return Some(Some(String::from_utf8_lossy(name).into_owned()));
    }
    Some(None)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    /// An ELF file with one program header.
    fn elf(kind: u32, name: &str) -> Vec<u8> {
        let mut file = vec![0; 64 + 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[32] = 64;
        file[54] = 56;
        file[56] = 1;
        file[64..68].copy_from_slice(&kind.to_le_bytes());
        file[72] = 120;
        file[96] = u8::try_from(name.len() + 1).unwrap();
        file.extend(name.bytes());
        file.push(0);
        file
    }

    #[test]
    fn a_programs_linker_says_whether_it_preloads() {
        for (name, linkage) in [
            ("/lib64/ld-linux-x86-64.so.2", Linkage::Glibc),
            ("/lib/ld-linux-aarch64.so.1", Linkage::Glibc),
            ("/lib/ld-musl-x86_64.so.1", Linkage::Musl),
            ("/odd", Linkage::Unknown),
        ] {
            assert_eq!(of_head(&elf(PT_INTERP, name)), linkage, "{name}");
        }
        assert_eq!(of_head(&elf(1, "/x")), Linkage::Static);
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(of_head(&own[..4 << 10]), Linkage::Glibc);
    }

    #[test]
    fn no_file_makes_it_fail() {
        let whole = elf(PT_INTERP, "/lib64/ld-linux-x86-64.so.2");
        for end in 0..whole.len() {
            of_head(&whole[..end]);
        }
        for at in 0..64 {
            let mut odd = whole.clone();
            odd[at] = 0xff;
            of_head(&odd);
            interpreter_of_script(&odd);
        }
        assert_eq!(
            interpreter_of_script(b"#! /bin/sh -e\n"),
            Some("/bin/sh".to_owned())
        );
        assert_eq!(interpreter_of_script(b"#!"), None);
    }
}

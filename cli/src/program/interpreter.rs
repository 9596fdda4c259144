//! The programs that the kernel starts for a file: the interpreter of a script, the dynamic linker
//! of an ELF file.

use super::{interpreted, read_head, resolve};
use crate::settings::Environment;
use object::LittleEndian;
use object::elf::{FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The interpreter that the file of a command names, or that one names in turn, if it is not there.
pub(crate) fn missing(command: &OsStr, environment: &Environment) -> Option<PathBuf> {
    let mut file = resolve(command, environment)?;
    // A script's interpreter may be a script; the kernel follows four.
    for _ in 0..5 {
        let head = read_head(&file)?;
        let named = match head.starts_with(b"#!") {
            true => interpreted(&head)?.next()?,
            false => OsStr::from_bytes(linker(&head)?),
        };
        file = Path::new(named).to_owned();
        if !file.exists() {
            return Some(file);
        }
    }
    None
}

/// The dynamic linker that an ELF file names.
pub(super) fn linker(head: &[u8]) -> Option<&[u8]> {
    let header = FileHeader64::<LittleEndian>::parse(head).ok()?;
    let segments = header.program_headers(LittleEndian, head).ok()?;
    let segment = segments
        .iter()
        .find(|segment| segment.p_type(LittleEndian) == PT_INTERP)?;
    let (offset, size) = segment.file_range(LittleEndian);
    let range = usize::try_from(offset).ok()?..usize::try_from(offset.checked_add(size)?).ok()?;
    let named = head.get(range)?;
    named.split(|byte| *byte == 0).next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    #[test]
    fn a_missing_interpreter_is_named_and_one_that_is_there_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let none = Environment::new();
        let of = |file: &Path| missing(file.as_os_str(), &none);
        let script = |name: &str, text: String| {
            let file = dir.path().join(name);
            fs::write(&file, text).unwrap();
            file
        };
        let lost = script("lost", "#! /no/python -u\n".to_owned());
        assert_eq!(of(&lost), Some("/no/python".into()));
        let by_it = script("by", format!("#!{}\n", lost.display()));
        assert_eq!(of(&by_it), Some("/no/python".into()));
        for there in ["#!/bin/sh\n", "#!/usr/bin/env no-such\n", "#!\n", "text"] {
            let there = script("there", there.to_owned());
            assert_eq!(of(&there), None, "{there:?}");
        }
        assert_eq!(of(Path::new("/no/file")), None);
    }

    #[test]
    fn a_missing_dynamic_linker_is_named_and_one_that_is_there_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("main.c");
        fs::write(&source, "int main(void) { return 0; }").unwrap();
        for (flags, expected) in [
            (&["-Wl,--dynamic-linker=/no/ld.so"][..], Some("/no/ld.so")),
            (&[], None),
        ] {
            let file = dir.path().join("program");
            let mut cc = Command::new("cc");
            let made = cc.args(flags).arg("-o").args([&file, &source]).status();
            assert!(made.unwrap().success());
            let found = missing(file.as_os_str(), &Environment::new());
            assert_eq!(found, expected.map(PathBuf::from));
        }
    }
}

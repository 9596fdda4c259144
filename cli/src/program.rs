//! Tells before a program starts whether a preload will reach it.

mod interpreter;
mod starters;

pub(crate) use interpreter::missing as missing_interpreter;
pub(crate) use starters::{Container, container, starts_apart, starts_elsewhere};

use crate::settings::Environment;
use gpushare_sys::files::has_capabilities;
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access, eaccess, getegid, geteuid};
use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::FileHeader;
use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Enough of a file for its headers and the name of its interpreter.
const HEAD: u64 = 64 * 1024;
const SETUID: u32 = 0o4000;
/// Without the group's right to execute, the bit for the group means no change of it.
const SETGID: u32 = 0o2010;
#[cfg(target_arch = "x86_64")]
const MACHINE: elf::Machine = elf::EM_X86_64;
#[cfg(target_arch = "aarch64")]
const MACHINE: elf::Machine = elf::EM_AARCH64;

/// The file a command means, by the program's `PATH`.
pub(crate) fn resolve(command: &OsStr, environment: &Environment) -> Option<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return Path::new(command).exists().then(|| command.into());
    }
    let path = environment.get(OsStr::new("PATH"))?;
    env::split_paths(path)
        .map(|folder| folder.join(command))
        .find(|file| access(file, AccessFlags::X_OK).is_ok() && file.is_file())
}

/// Looks for a command as `execvp` does: fails with `ENOENT` or `EACCES` where its start is sure to
/// fail now. Whatever else is wrong with it, its start tells.
pub(crate) fn look_for(command: &OsStr, environment: &Environment) -> Result<(), Errno> {
    if command.as_bytes().contains(&b'/') {
        return match executable(Path::new(command)) {
            Err(errno @ (Errno::ENOENT | Errno::EACCES)) => Err(errno),
            _ => Ok(()),
        };
    }
    // Without the variable the C library has folders of its own.
    let Some(path) = environment.get(OsStr::new("PATH")) else {
        return Ok(());
    };
    let mut failure = Errno::ENOENT;
    for folder in env::split_paths(path).filter(|_| !command.is_empty()) {
        match executable(&folder.join(command)) {
            Ok(()) => return Ok(()),
            Err(Errno::EACCES) => failure = Errno::EACCES,
            Err(_) => {}
        }
    }
    Err(failure)
}

fn executable(file: &Path) -> Result<(), Errno> {
    eaccess(file, AccessFlags::X_OK)?;
    match file.is_dir() {
        true => Err(Errno::EACCES),
        false => Ok(()),
    }
}

/// Why a preload will not be loaded into a program, as its predicate in a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutOfReach {
    /// Programs that it starts load the preload.
    Alone(&'static str),
    /// It gains rights that we do not have: the dynamic linker removes the preload from its
    /// environment, so that no program that it starts has it.
    WithItsChildren(&'static str),
}

/// Why a preload will not be loaded into the program, if so. A script is judged by its interpreter.
pub(crate) fn out_of_reach(command: &OsStr, environment: &Environment) -> Option<OutOfReach> {
    let mut file = resolve(command, environment)?;
    // A script's interpreter may be a script; the kernel follows four.
    for _ in 0..5 {
        let head = read_head(&file)?;
        if !head.starts_with(b"#!") {
            let gains = gains_rights(&file).map(OutOfReach::WithItsChildren);
            return gains.or_else(|| judge(&head).map(OutOfReach::Alone));
        }
        file = interpreter(&head, environment)?;
    }
    None
}

/// How the program gains rights when it is started, if it does. The kernel asks the same: files of
/// our own user and group change nothing, and root has all capabilities.
fn gains_rights(file: &Path) -> Option<&'static str> {
    let found = fs::metadata(file).ok()?;
    let has = |bits: u32| found.mode() & bits == bits;
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    if has(SETUID) && found.uid() != user || has(SETGID) && found.gid() != group {
        Some("is setuid or setgid")
    } else if user != 0 && has_capabilities(file) {
        Some("has capabilities of its own")
    } else {
        None
    }
}

fn read_head(file: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    File::open(file)
        .ok()?
        .take(HEAD)
        .read_to_end(&mut head)
        .ok()?;
    Some(head)
}

/// The words of a script's first line.
fn interpreted(head: &[u8]) -> Option<impl Iterator<Item = &OsStr>> {
    let line = head
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .map(OsStr::from_bytes);
    Some(words)
}

/// The program a script names; after `env` the next one.
fn interpreter(head: &[u8], environment: &Environment) -> Option<PathBuf> {
    let mut words = interpreted(head)?;
    let named = Path::new(words.next()?);
    let mut behind_env =
        words.filter(|word| !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'='));
    match (
        named.file_name() == Some(OsStr::new("env")),
        behind_env.next(),
    ) {
        (true, Some(program)) => resolve(program, environment),
        _ => Some(named.to_owned()),
    }
}

/// `None` for a dynamic program of this machine's glibc, and for a file that is not ELF.
fn judge(head: &[u8]) -> Option<&'static str> {
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    let Ok(header) = FileHeader64::<LittleEndian>::parse(head) else {
        return Some("is built for another kind of machine");
    };
    if header.e_machine.get(LittleEndian) != MACHINE {
        return Some("is built for another kind of machine");
    }
    let Some(linker) = interpreter::linker(head) else {
        return Some("is statically linked");
    };
    let musl = linker.windows(4).any(|name| name == b"musl");
    musl.then_some("uses musl, not glibc")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    fn environment() -> Environment {
        [("PATH".into(), env::var_os("PATH").unwrap())].into()
    }

    fn compile(dir: &Path, name: &str, flags: &[&str]) -> PathBuf {
        let (source, program) = (dir.join("main.c"), dir.join(name));
        fs::write(&source, "int main(void) { return 0; }").unwrap();
        assert!(
            Command::new("cc")
                .args(flags)
                .arg("-o")
                .args([&program, &source])
                .status()
                .unwrap()
                .success()
        );
        program
    }

    fn script(dir: &Path, line: &str) -> PathBuf {
        let file = dir.join("script");
        fs::write(&file, format!("{line}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        file
    }

    #[test]
    fn static_programs_and_scripts_run_by_them_are_out_of_reach() {
        let dir = tempfile::tempdir().unwrap();
        for flag in ["-static", "-static-pie"] {
            let program = compile(dir.path(), "static", &[flag]);
            assert_eq!(
                out_of_reach(program.as_os_str(), &environment()),
                Some(OutOfReach::Alone("is statically linked")),
                "{flag}"
            );
            let script = script(dir.path(), &format!("#! {} -x", program.display()));
            assert_eq!(
                out_of_reach(script.as_os_str(), &environment()),
                Some(OutOfReach::Alone("is statically linked")),
                "{flag}"
            );
        }
    }

    #[test]
    fn dynamic_programs_and_scripts_run_by_them_are_within_reach() {
        let dir = tempfile::tempdir().unwrap();
        let program = compile(dir.path(), "dynamic", &[]);
        assert_eq!(out_of_reach(program.as_os_str(), &environment()), None);
        for line in ["#!/bin/sh", "#!/usr/bin/env -S A=b sh", "no script at all"] {
            let script = script(dir.path(), line);
            assert_eq!(
                out_of_reach(script.as_os_str(), &environment()),
                None,
                "{line}"
            );
        }
        assert_eq!(out_of_reach(OsStr::new("sh"), &environment()), None);
        assert_eq!(
            out_of_reach(OsStr::new("no-such-program"), &environment()),
            None
        );
    }

    #[test]
    fn a_command_is_looked_for_as_its_start_would_find_it() {
        let dir = tempfile::tempdir().unwrap();
        let closed = dir.path().join("closed");
        fs::create_dir_all(closed.join("folder")).unwrap();
        fs::write(closed.join("script"), "").unwrap();
        script(dir.path(), "#!/bin/sh");
        let file = |path: &Path| path.to_str().unwrap().to_owned();
        let (first, both) = (
            file(&closed),
            format!("{}:{}", closed.display(), dir.path().display()),
        );
        for (command, path) in [
            ("script", Some(&first)),
            ("script", Some(&both)),
            ("folder", Some(&first)),
            ("other", Some(&both)),
            ("", Some(&first)),
            ("sh", None),
            (&file(&closed.join("script")), None),
            (&file(&closed), None),
            (&file(&dir.path().join("script")), None),
            (&file(&dir.path().join("other")), None),
        ] {
            let path = path.map(|path| ("PATH".into(), path.into()));
            let environment: Environment = path.into_iter().collect();
            let mut start = Command::new(command);
            let started = start.env_clear().envs(&environment).output();
            let expected = started.map(|_| ()).map_err(|error| error.raw_os_error());
            let found = look_for(OsStr::new(command), &environment);
            let found = found.map_err(|errno| Some(errno as i32));
            assert_eq!(found, expected, "{command} {environment:?}");
        }
    }

    #[test]
    fn programs_that_become_another_user_are_out_of_reach() {
        let dir = tempfile::tempdir().unwrap();
        let program = compile(dir.path(), "setuid", &[]);
        let with = |mode| {
            fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
            out_of_reach(program.as_os_str(), &environment())
        };
        assert_eq!(with(0o6755), None, "they stay the same user");
        let another = geteuid().as_raw().wrapping_add(1);
        if std::os::unix::fs::chown(&program, Some(another), Some(another)).is_err() {
            return; // Only root gives files away.
        }
        let gains = Some(OutOfReach::WithItsChildren("is setuid or setgid"));
        for (mode, expected) in [
            (0o4755, gains),
            (0o2755, gains),
            (0o2745, None),
            (0o755, None),
        ] {
            assert_eq!(with(mode), expected, "{mode:o}");
        }
    }

    #[test]
    fn another_c_library_is_told_by_the_interpreter_it_names() {
        let dir = tempfile::tempdir().unwrap();
        let flag = "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1";
        let program = compile(dir.path(), "musl", &[flag]);
        assert_eq!(
            out_of_reach(program.as_os_str(), &environment()),
            Some(OutOfReach::Alone("uses musl, not glibc"))
        );
    }
}

//! The identity of a process: its start time, its parent, its pid namespace, read from `/proc`.

use crate::guest::clock;
use std::fs;

/// A process, distinguished from a later one of the same pid by its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Process id in our namespace.
    pub(crate) pid: u32,
    /// Start in clock ticks since boot, in the machine's clock.
    pub(crate) start: u64,
}

impl Identity {
    /// Whether this process is the one of the same pid that started then. In a time namespace with
    /// an offset within a tick a start may be read as one later, and no pid comes round so soon.
    pub(crate) fn started(self, then: u64) -> bool {
        self.start.abs_diff(then) <= 1
    }
}

/// Inode of the first pid namespace, fixed in the kernel (`PROC_PID_INIT_INO`).
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFC;

/// The process of this pid and its parent's pid, `None` if there is none.
pub(crate) fn look_up(pid: u32) -> Option<(Identity, u32)> {
    let Stat { parent, start, .. } = stat(pid)?;
    Some((Identity { pid, start }, parent))
}

/// What a process's pid means now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Now {
    /// No process, or that one as it ends: the kernel closes its files.
    Ended,
    /// Another process.
    Another,
    /// That process, which has not ended.
    Same,
}

/// What has become of a process.
pub(crate) fn now(identity: Identity) -> Now {
    match stat(identity.pid) {
        Some(stat) if !identity.started(stat.start) => Now::Another,
        Some(stat) if stat.flags & EXITING == 0 => Now::Same,
        _ => Now::Ended,
    }
}

/// This process. A start of 0 where there is no `/proc`.
pub(crate) fn this() -> Identity {
    let pid = std::process::id();
    look_up(pid).map_or(Identity { pid, start: 0 }, |(identity, _)| identity)
}

/// The pid namespace's inode, 0 where it is unknown.
pub(crate) fn namespace() -> u64 {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let text = link.to_string_lossy();
    let digits = text.trim_start_matches("pid:[").trim_end_matches(']');
    digits.parse().unwrap_or(0)
}

/// Whether pids in this namespace are the machine's own, or nothing tells.
pub(crate) fn is_first(namespace: u64) -> bool {
    matches!(namespace, 0 | FIRST_NAMESPACE)
}

/// Whether pids here are the machine's own.
pub(crate) fn in_first_namespace() -> bool {
    namespace() == FIRST_NAMESPACE
}

/// This process's pid in the outermost namespace that its `/proc` shows, which is the machine's
/// only where that is mounted. 0 where only its own is to be seen.
pub(crate) fn outer() -> u32 {
    if in_first_namespace() {
        return std::process::id();
    }
    let status = fs::read("/proc/self/status").unwrap_or_default();
    outermost(&String::from_utf8_lossy(&status)).unwrap_or(0)
}

/// The first of several pids in a `/proc/<pid>/status`.
fn outermost(status: &str) -> Option<u32> {
    let line = status.lines();
    let mut pids = line
        .filter_map(|line| line.strip_prefix("NSpid:"))
        .flat_map(str::split_ascii_whitespace);
    let (first, second) = (pids.next()?, pids.next());
    second.and_then(|_| first.parse().ok())
}

/// `PF_EXITING` of the kernel's flags of a thread: set before the first of its files is closed.
const EXITING: u64 = 4;

/// Of a `/proc/<pid>/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    flags: u64,
    /// In the machine's clock.
    start: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let shown = shown(pid)?;
    Some(Stat {
        start: clock::offsets().machines_start(shown.start),
        ..shown
    })
}

/// As `/proc` shows it here.
fn shown(pid: u32) -> Option<Stat> {
    // The name in it need not be text: the kernel cuts it off within a letter.
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse(&String::from_utf8_lossy(&stat))
}

/// The name in the line may hold anything, so fields count from its last `)`.
fn parse(stat: &str) -> Option<Stat> {
    let rest = &stat[stat.rfind(')')? + 1..];
    let mut fields = rest.split_ascii_whitespace();
    Some(Stat {
        parent: fields.nth(1)?.parse().ok()?,
        flags: fields.nth(4)?.parse().ok()?,
        start: fields.nth(12)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::{Command, Stdio};

    #[test]
    fn parent_and_start_are_found_behind_any_name() {
        let stat = "7 (a) b (c) S 3 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 8812345 1 2 3";
        let expected = Stat {
            parent: 3,
            flags: 4_194_560,
            start: 8_812_345,
        };
        assert_eq!(parse(stat), Some(expected));
        assert_eq!(parse("7 (a"), None);
    }

    #[test]
    fn a_process_that_nobody_has_reaped_has_ended() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let (identity, _) = look_up(child.id()).unwrap();
        assert_eq!(now(identity), Now::Same);
        let another = Identity {
            start: identity.start + 2,
            ..identity
        };
        assert_eq!(now(another), Now::Another);
        drop(child.stdin.take());
        while now(identity) == Now::Same {
            std::thread::yield_now();
        }
        assert_eq!(now(identity), Now::Ended);
        assert!(look_up(child.id()).is_some(), "it is there until reaped");
        child.wait().unwrap();
        assert_eq!(now(identity), Now::Ended);
    }

    #[test]
    fn a_pid_further_out_is_seen_where_proc_shows_one() {
        assert_eq!(outermost("Name:\ta\nNSpid:\t812\t7\t1\n"), Some(812));
        assert_eq!(outermost("NSpid:\t7\n"), None);
        assert_eq!(outermost(""), None);
    }

    #[test]
    fn a_process_whose_name_is_cut_within_a_letter_is_found() {
        let mut child = Command::new("sh")
            .args(["-c", r"printf 'a\320' > /proc/$$/comm; echo; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It has its name once it says something.
        let read = child.stdout.as_mut().unwrap().read(&mut [0]).unwrap();
        let found = look_up(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(read, 1);
        let (child, parent) = found.unwrap();
        assert!(
            child.start > 0 && parent == this().pid,
            "{child:?} {parent}"
        );
    }

    #[test]
    fn this_process_is_found_and_a_missing_one_is_not() {
        let (me, parent) = look_up(std::process::id()).unwrap();
        assert_eq!(me, this());
        assert!(me.start > 0 && parent > 0);
        assert_eq!(look_up(u32::MAX), None);
    }
}

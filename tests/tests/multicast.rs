//! Memory that is bound to a multicast object stays charged as long as a driver holds it: the
//! account and the driver's books agree, in whichever order a program lets go. The driver is a
//! double, because the software GPU has no multicast.

use gpushare_tests::guest::clean;
use gpushare_tests::{Guest, MIB, artefacts, clients};

const LIMIT: u64 = 256 * MIB;
const BYTES: u64 = 128 * MIB;

/// A program under [`LIMIT`].
pub(crate) struct Program {
    pub(crate) guest: Guest,
    _runtime: tempfile::TempDir,
}

impl Program {
    pub(crate) fn started() -> Self {
        let mut command = clean(&clients::compile("multicast", &[]));
        let runtime = tempfile::tempdir().expect("a temporary folder");
        command
            .env("LD_LIBRARY_PATH", clients::driver("multicast_driver"))
            .env("LD_PRELOAD", artefacts::interposer())
            .env("XDG_RUNTIME_DIR", runtime.path())
            .env("GPUSHARE_MEM_LIMIT", "256MiB");
        let guest = Guest::start(command).started();
        Self {
            guest,
            _runtime: runtime,
        }
    }

    /// With an object in slot 0, to which [`BYTES`] of slot 1 are bound.
    fn bound() -> Self {
        let mut program = Self::started();
        program.does(&["object 0", &format!("make 1 {BYTES}"), "bind 0 1 0"]);
        program
    }

    /// Executes each line with success. After each the account is what the driver holds.
    #[track_caller]
    pub(crate) fn does(&mut self, lines: &[&str]) {
        for line in lines {
            self.guest.does(line);
            let answer = self.guest.ask("held");
            let numbers = answer.split(' ').skip(1);
            let numbers: Vec<u64> = numbers.map(|word| word.parse().expect("bytes")).collect();
            assert_eq!(LIMIT - numbers[0], numbers[1], "after {line}");
        }
    }

    /// Executes each line. All memory is held until the last one, and none after it.
    #[track_caller]
    fn lets_go_at_the_end_of(mut self, lines: &[&str]) {
        assert_eq!(self.held(), BYTES);
        self.lets_go_of(lines);
    }

    /// Executes each line. What is held stays so until the last one, and nothing is after it.
    #[track_caller]
    pub(crate) fn lets_go_of(mut self, lines: &[&str]) {
        let held = self.held();
        let (last, before) = lines.split_last().expect("some lines");
        self.does(before);
        assert_eq!(self.held(), held, "before {last}");
        self.does(&[last]);
        assert_eq!(self.held(), 0, "after {last}");
        self.guest.finish().silently();
    }

    #[track_caller]
    pub(crate) fn held(&mut self) -> u64 {
        let answer = self.guest.ask("held");
        let free: u64 = answer
            .split(' ')
            .nth(1)
            .and_then(|word| word.parse().ok())
            .expect("bytes");
        LIMIT - free
    }
}

#[test]
fn memory_of_a_mapped_object_stays_charged_without_any_handle() {
    Program::bound().lets_go_at_the_end_of(&["map 0", "release 0", "release 1", "unmap 0"]);
}

#[test]
fn an_object_that_is_not_mapped_ends_with_its_handle() {
    Program::bound().lets_go_at_the_end_of(&["map 0", "unmap 0", "release 1", "release 0"]);
}

#[test]
fn a_second_reference_of_an_object_keeps_what_is_bound() {
    let lines = [
        "map 0",
        "retain 0 2",
        "release 2",
        "unmap 0",
        "release 1",
        "release 0",
    ];
    Program::bound().lets_go_at_the_end_of(&lines);
}

#[test]
fn unbound_memory_is_credited_with_its_handle() {
    let unbind = format!("unbind 0 0 {BYTES}");
    Program::bound().lets_go_at_the_end_of(&["map 0", &unbind, "release 1"]);
}

#[test]
fn an_object_with_a_number_that_was_in_use_before_holds_its_own() {
    let mut program = Program::bound();
    program.does(&["release 0", "object 0", "bind 0 1 0", "map 0", "release 1"]);
    program.lets_go_at_the_end_of(&["release 0", "unmap 0"]);
}

#[test]
fn an_object_is_not_charged_whatever_its_size() {
    let mut program = Program::bound();
    program.does(&["object 2", "object 3", "map 2"]);
    assert_eq!(program.held(), BYTES);
    program.guest.does(&format!("make 4 {BYTES}"));
    program.guest.answers("make 5 2097152", "2");
    program.guest.finish().silently();
}

/// Of memory in slots 1 and 2, mapped one after the other, there is a DMA buffer.
fn as_a_dma_buffer() -> Program {
    let mut program = Program::started();
    let half = BYTES / 2;
    program.does(&[&format!("make 1 {half}"), &format!("make 2 {half}")]);
    program.does(&["map 1", "map 2", "dmabuf 1 2"]);
    program
}

#[test]
fn mapped_memory_stays_charged_until_its_dma_buffer_is_closed() {
    let lines = ["release 1", "release 2", "unmap 1", "unmap 2", "close"];
    as_a_dma_buffer().lets_go_at_the_end_of(&lines);
}

#[test]
fn memory_whose_dma_buffer_is_closed_is_credited_with_its_mapping() {
    let mut program = as_a_dma_buffer();
    program.does(&["close", "release 1", "release 2", "unmap 1"]);
    assert_eq!(program.held(), BYTES / 2);
    program.lets_go_of(&["unmap 2"]);
}

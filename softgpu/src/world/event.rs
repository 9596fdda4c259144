//! Events between processes: a file each in the machine's folder, with the numbers of the last
//! recording, of the last complete one, and of the process that recorded last.
//!
//! The process that made the event removes the file; the others keep it open. What a process that
//! died has recorded counts as complete, as its work ends with it. A process is named by its
//! number, which no later process has; its slot is given again.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use gpushare_cuda_abi::cuda::CUresult;

use super::folder;
use super::machine::Machine;
use super::state::{Facts, View};
use crate::error::Result;

/// The file's numbers.
#[derive(Debug, Clone, Copy, Default)]
struct Words {
    recorded: u64,
    complete: u64,
    /// The recorder's number; 0 if there is none.
    by: u64,
}

/// An event that several processes use.
#[derive(Debug)]
pub(crate) struct SharedEvent {
    machine: Arc<Machine>,
    file: File,
    name: [u32; 2],
    /// Removed when this is dropped; `None` in a process that opened the event.
    own: Option<PathBuf>,
}

impl SharedEvent {
    /// Makes an event.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if its file cannot be made.
    pub(super) fn create(machine: &Arc<Machine>) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = [machine.number()?, NEXT.fetch_add(1, Ordering::Relaxed)];
        let path = machine.folder().join(file_name(name));
        let file = folder::open(&path, true).map_err(|_| CUresult::OUT_OF_MEMORY)?;
        let event = Self {
            machine: Arc::clone(machine),
            file,
            name,
            own: Some(path),
        };
        event.write(Words::default())?;
        Ok(event)
    }

    /// Opens another process's event by its name.
    ///
    /// # Errors
    /// `INVALID_HANDLE` if it is gone.
    pub(super) fn open(machine: &Arc<Machine>, name: [u32; 2]) -> Result<Self> {
        let path = machine.folder().join(file_name(name));
        let file = folder::open(&path, false).map_err(|_| CUresult::INVALID_HANDLE)?;
        Ok(Self {
            machine: Arc::clone(machine),
            file,
            name,
            own: None,
        })
    }

    /// Its name in the machine: the number of its maker, and its own there.
    pub(crate) fn name(&self) -> [u32; 2] {
        self.name
    }

    /// Notes a recording by this process. Returns its number.
    pub(crate) fn record(&self) -> Result<u64> {
        let slot = self.machine.slot()?;
        self.change(|words, view, facts| {
            if is_over(words.by, view, facts) {
                words.complete = words.recorded;
            }
            words.recorded += 1;
            words.by = view.header.slots[slot].number.into();
        })
        .map(|words| words.recorded)
    }

    /// Notes that a recording is complete, and with it all before.
    pub(crate) fn complete(&self, number: u64) -> Result {
        self.change(|words, _, _| words.complete = words.complete.max(number))
            .map(|_| ())
    }

    /// The number of the last recording; 0 if there is none.
    pub(crate) fn recorded(&self) -> u64 {
        self.read().recorded
    }

    /// Whether a recording is complete.
    pub(crate) fn is_complete(&self, number: u64) -> bool {
        if self.read().complete >= number {
            return true;
        }
        let look = |view: &mut View<'_>, facts: &dyn Facts| {
            let words = self.read();
            words.complete >= number || is_over(words.by, view, facts)
        };
        // Nothing waits on a machine whose state is lost.
        self.machine.locked(look).unwrap_or(true)
    }

    fn change(&self, change: impl FnOnce(&mut Words, &View<'_>, &dyn Facts)) -> Result<Words> {
        self.machine.locked(|view, facts| {
            let mut words = self.read();
            change(&mut words, view, facts);
            self.write(words).map(|()| words)
        })?
    }

    fn read(&self) -> Words {
        let mut bytes = [0; 24];
        // A file that cannot be read holds no recording: nothing waits for it.
        let _ = self.file.read_exact_at(&mut bytes, 0);
        let word = |at: usize| {
            let bytes = bytes[at..at + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        Words {
            recorded: word(0),
            complete: word(8),
            by: word(16),
        }
    }

    fn write(&self, words: Words) -> Result {
        let bytes = [words.recorded, words.complete, words.by].map(u64::to_le_bytes);
        let written = self.file.write_all_at(bytes.as_flattened(), 0);
        written.map_err(|_| CUresult::OPERATING_SYSTEM)
    }
}

impl Drop for SharedEvent {
    fn drop(&mut self) {
        if let Some(path) = &self.own {
            // If it stays, it goes with the machine.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn file_name([maker, number]: [u32; 2]) -> String {
    format!("event-{maker}-{number}")
}

/// Whether the process of this number has died.
fn is_over(number: u64, view: &View<'_>, facts: &dyn Facts) -> bool {
    let mut slots = view.header.slots.iter().enumerate();
    let held = slots.find(|(_, slot)| u64::from(slot.number) == number);
    number > 0 && held.is_none_or(|(at, slot)| slot.dead != 0 || !facts.process_lives(at))
}

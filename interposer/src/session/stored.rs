//! Ranges of the host store in files: the mover's questions about them, and the files.
//!
//! The control thread alone has the files' descriptors, which can only be read. It presents them to
//! the next daemon: so what is stored outlives the daemon that stored it.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gpushare_protocol::wire::{Refusal, Reply, Request, Spot, Stored, encode};

use super::{Session, pages, socket};
use crate::guest::descriptor::Descriptor;
use crate::guest::{exit, frames};

/// How often an answer is looked for.
const LOOK: Duration = Duration::from_millis(1);
/// The pause after the daemon had no room.
const PAUSE: Duration = Duration::from_millis(20);

/// The daemon's answer to the mover's last question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The range is stored.
    Stored(Stored),
    /// The bytes are mapped at this address; their place in the daemon's file, and their length.
    Fetched(usize, u64, u64),
    /// Not now.
    Refused,
    /// They are lost.
    Lost,
}

/// The question, by its number, and its answer. There is one at a time.
#[derive(Debug, Default)]
pub(super) struct Question {
    id: u32,
    answer: Option<Answer>,
}

/// The files, each with the number of the last question by which it came.
#[derive(Debug, Default)]
pub(super) struct Files {
    kept: BTreeMap<u64, (Descriptor, u32)>,
    memory: MemoryFile,
    /// Those of questions up to this one are to be closed.
    unused: u32,
}

/// The file in which the process's ranges of memory are. The next daemon finds a range in it by its
/// place alone, so it is shown only where each range that there ever was came by it.
#[derive(Debug, Default)]
enum MemoryFile {
    #[default]
    None,
    One(Descriptor),
    /// Daemons gave ranges by several.
    Several,
}

impl MemoryFile {
    /// A range was given by this file.
    fn keep(&mut self, file: Descriptor) {
        match self {
            Self::None => *self = Self::One(file),
            Self::One(kept) if kept.identity() == file.identity() => {}
            _ => *self = Self::Several,
        }
    }

    fn shown(&self) -> Option<&Descriptor> {
        match self {
            Self::One(file) => Some(file),
            Self::None | Self::Several => None,
        }
    }
}

impl Files {
    /// Takes out those that are to be closed.
    fn close_unused(&mut self) -> BTreeMap<u64, (Descriptor, u32)> {
        let unused = self.unused;
        let all = core::mem::take(&mut self.kept).into_iter();
        let (closed, kept) = all.partition(|(_, (_, of))| *of <= unused);
        self.kept = kept;
        closed
    }

    /// Sends all that are still ours, one after the other. What is in one that the program has
    /// closed is lost, whatever is sent.
    ///
    /// # Errors
    /// The first one of `send`.
    fn present(
        &self,
        mut send: impl FnMut(Request, &Descriptor) -> io::Result<()>,
    ) -> io::Result<()> {
        let memory = self.memory.shown().into_iter();
        let memory = memory.map(|file| (Request::HostMemory, file));
        let stored = self.kept.iter();
        let stored = stored.map(|(number, (file, _))| (Request::HostFile { file: *number }, file));
        for (request, file) in memory.chain(stored) {
            if file.is_ours() {
                send(request, file)?;
            } else {
                tracing::warn!("the program has closed a file of its memory");
            }
        }
        Ok(())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// The daemon's request to have ranges stored; 0 for none.
    pub(crate) fn spill(&self) -> u32 {
        if !self.is_connected() {
            return 0;
        }
        let spill = self.control().header.spill.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        spill
    }

    /// Asks the daemon to store a range: the number of the question. `None` if there is none to
    /// ask.
    pub(crate) fn ask_store(&self, offset: u64, bytes: u64) -> Option<u32> {
        self.puts(&Request::HostStore { offset, bytes })
    }

    /// Whether an answer may come.
    pub(crate) fn is_asking(&self) -> bool {
        locked(&self.question).id != 0
    }

    /// Whether the answer would be to the question of this number.
    pub(crate) fn is_asked(&self, question: u32) -> bool {
        locked(&self.question).id == question
    }

    /// The answer, once it has come.
    pub(crate) fn take_answer(&self) -> Option<Answer> {
        let mut question = locked(&self.question);
        let answer = question.answer.take()?;
        question.id = 0;
        Some(answer)
    }

    /// Has stored bytes brought back into memory, and waits for them. `None` if there is no daemon,
    /// or it does not answer until `end`.
    pub(crate) fn fetch(&self, stored: Stored, end: Instant) -> Option<Answer> {
        while self.puts(&Request::HostFetch(stored)).is_some() {
            let answer = self.await_answer(end);
            if answer != Some(Answer::Refused) || Instant::now() + PAUSE >= end {
                return answer;
            }
            frames::sleep(PAUSE);
        }
        None
    }

    fn await_answer(&self, end: Instant) -> Option<Answer> {
        loop {
            let answer = self.take_answer();
            let over = Instant::now() >= end || exit::is_leaving() || !self.is_asking();
            if answer.is_some() || over {
                return answer;
            }
            frames::sleep(LOOK);
        }
    }

    /// Puts a question in place of the one before. Its number.
    fn puts(&self, request: &Request) -> Option<u32> {
        let line = self.line();
        line.as_ref()?;
        let id = self.asks.number();
        let before = {
            let mut question = locked(&self.question);
            let before = question.answer.take();
            question.id = id;
            before
        };
        self.send(line.as_ref(), id, request);
        drop(line);
        self.drop_answer(before);
        Some(id)
    }

    /// An answer that no thread waits for any more.
    pub(crate) fn drop_answer(&self, answer: Option<Answer>) {
        match answer {
            Some(Answer::Stored(stored)) => self.forgets(stored),
            Some(Answer::Fetched(address, offset, bytes)) => self.drops(address, offset, bytes),
            _ => {}
        }
    }

    /// The process has nothing in files any more: the control thread closes them.
    pub(crate) fn close_files(&self) {
        let last = self.asks.number();
        locked(&self.files).unused = last;
        self.ring();
    }

    /// For the control thread, which alone has the descriptors.
    pub(super) fn close_unused_files(&self) {
        let closed = locked(&self.files).close_unused();
        for file in closed.into_keys() {
            // A daemon to which it was presented cannot know otherwise.
            self.says(&Request::HostForget(Stored::all_of(file)));
        }
    }

    /// A range was stored, in the file of this descriptor. For the control thread.
    pub(super) fn was_stored(&self, id: u32, stored: Stored, file: Option<Descriptor>) {
        let is_kept = {
            let mut files = locked(&self.files);
            let kept = files.kept.get_mut(&stored.file);
            match (kept, file) {
                (Some(kept), _) => {
                    kept.1 = id;
                    true
                }
                (None, Some(file)) => {
                    files.kept.insert(stored.file, (file, id));
                    true
                }
                (None, None) => false,
            }
        };
        if is_kept {
            self.has(stored.spot());
        }
        // Without the file the bytes would be gone with the daemon.
        let answer = match is_kept {
            true => Answer::Stored(stored),
            false => Answer::Refused,
        };
        if !is_kept || !self.answers(id, answer) {
            self.forgets(stored);
        }
    }

    /// A range was given in answer to a question. `false` if it is another's. For the control
    /// thread.
    pub(super) fn was_fetched(
        &self,
        id: u32,
        file: &Descriptor,
        (offset, bytes): (u64, u64),
    ) -> bool {
        if locked(&self.question).id != id {
            return false;
        }
        let answer = match pages::host_range(file, offset, bytes) {
            Ok(address) => {
                self.has(Spot::memory(offset));
                Answer::Fetched(address, offset, bytes)
            }
            Err(error) => {
                self.is_of_no_use(&error, (offset, bytes));
                Answer::Refused
            }
        };
        if !self.answers(id, answer) {
            self.drop_answer(Some(answer));
        }
        true
    }

    /// The daemon refuses the question. For the control thread.
    pub(super) fn question_refused(&self, id: u32, reply: &Reply) {
        let answer = match reply {
            Reply::Refused(Refusal::DataLost) => Answer::Lost,
            _ => Answer::Refused,
        };
        self.answers(id, answer);
    }

    /// The answer to the question is of no use. For the control thread.
    pub(super) fn question_fails(&self, id: u32) {
        self.answers(id, Answer::Refused);
    }

    fn answers(&self, id: u32, answer: Answer) -> bool {
        let mut question = locked(&self.question);
        let is_own = question.id == id;
        if is_own {
            question.answer = Some(answer);
        }
        is_own
    }

    /// The daemon has gone: no answer comes.
    pub(super) fn forget_question(&self) {
        let mut question = locked(&self.question);
        if question.answer.is_none() {
            question.id = 0;
        }
    }

    /// Presents the files to the next daemon. For the control thread.
    ///
    /// # Errors
    /// If one was not sent. The daemon would take what is in it for lost: all are presented anew,
    /// on another connection.
    pub(super) fn present_files(&self, socket: &Descriptor) -> io::Result<()> {
        locked(&self.files).present(|request, file| {
            let mut frame = Vec::new();
            match encode(self.asks.number(), &request, &mut frame) {
                Ok(()) => socket::send(socket, &frame, Some(file)),
                Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        })
    }

    /// A range was given in this file: the next daemon is shown it. For the control thread.
    pub(super) fn keep_memory(&self, file: Descriptor) {
        locked(&self.files).memory.keep(file);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::guest::sys;

    fn file() -> Descriptor {
        let (file, _) = UnixStream::pair().expect("something open");
        Descriptor::new(file.into_raw_fd()).expect("a descriptor")
    }

    fn three() -> Files {
        Files {
            kept: BTreeMap::from([(4, (file(), 1)), (5, (file(), 2))]),
            memory: MemoryFile::One(file()),
            unused: 0,
        }
    }

    #[test]
    fn all_files_are_presented_with_their_numbers() {
        let mut sent = Vec::new();
        let answer = three().present(|request, _| {
            sent.push(request);
            Ok(())
        });
        let files = [4, 5].map(|file| Request::HostFile { file });
        assert!(answer.is_ok());
        assert_eq!(sent, [&[Request::HostMemory][..], &files].concat());
    }

    #[test]
    fn memory_is_shown_only_where_all_of_it_came_by_one_file() {
        let (one, other) = (file(), file());
        let again = |file: &Descriptor| {
            Descriptor::new(sys::duplicate(file.number(), 3)).expect("a descriptor")
        };
        let kept = |came: &[&Descriptor]| {
            let mut memory = MemoryFile::default();
            came.iter().for_each(|file| memory.keep(again(file)));
            memory.shown().map(Descriptor::identity)
        };
        assert_eq!(kept(&[]), None);
        assert_eq!(kept(&[&one, &one]), Some(one.identity()));
        assert_eq!(kept(&[&one, &other, &one]), None);
    }

    #[test]
    fn one_file_that_is_not_sent_fails_the_presentation() {
        let mut tried = 0;
        let answer = three().present(|_, _| {
            tried += 1;
            match tried {
                2 => Err(io::Error::from_raw_os_error(libc::ETOOMANYREFS)),
                _ => Ok(()),
            }
        });
        let why = answer.expect_err("one is missing").raw_os_error();
        assert_eq!((why, tried), (Some(libc::ETOOMANYREFS), 2));
    }

    #[test]
    fn file_that_the_program_closed_does_not_keep_the_others_back() {
        let files = three();
        let gone = files.kept.get(&4).map(|(file, _)| file.number());
        sys::close(gone.expect("it is kept"));
        let mut sent = Vec::new();
        let answer = files.present(|request, _| {
            sent.push(request);
            Ok(())
        });
        assert!(answer.is_ok());
        assert_eq!(sent, [Request::HostMemory, Request::HostFile { file: 5 }]);
    }
}

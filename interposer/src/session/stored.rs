//! Ranges of the host store in files: the mover's questions about them, and the files.
//!
//! The control thread alone has the files' descriptors, which can only be read. It presents them to
//! the next daemon: so what is stored outlives the daemon that stored it.

use std::collections::{BTreeMap, BTreeSet};
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
    /// Those in place of which others were put. The daemon answers them too.
    replaced: BTreeSet<u32>,
}

impl Question {
    /// Puts another one in place of it. The answer that came.
    fn put(&mut self, id: u32) -> Option<Answer> {
        let before = core::mem::replace(&mut self.id, id);
        let answer = self.answer.take();
        if before != 0 && answer.is_none() {
            self.replaced.insert(before);
        }
        answer
    }

    /// An answer has come. Whether it is to this question.
    fn hears(&mut self, id: u32, answer: Answer) -> bool {
        let is_own = self.id == id;
        match is_own {
            true => self.answer = Some(answer),
            false => _ = self.replaced.remove(&id),
        }
        is_own
    }

    /// No answer comes any more.
    fn forget(&mut self) {
        self.replaced.clear();
        if self.answer.is_none() {
            self.id = 0;
        }
    }
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

    /// Asks the daemon to bring stored bytes back into memory: the number of the question. `None`
    /// if there is none to ask.
    pub(crate) fn ask_fetch(&self, stored: Stored) -> Option<u32> {
        self.puts(&Request::HostFetch(stored))
    }

    /// Waits for the answer to a question, until `end`. Whether it is still to come.
    pub(crate) fn awaits(&self, question: u32, end: Instant) -> bool {
        loop {
            let awaits = {
                let now = locked(&self.question);
                now.id == question && now.answer.is_none()
            };
            if !awaits || Instant::now() >= end || exit::is_leaving() {
                return awaits;
            }
            frames::sleep(LOOK);
        }
    }

    /// Puts a question in place of the one before. Its number.
    fn puts(&self, request: &Request) -> Option<u32> {
        let line = self.line();
        line.as_ref()?;
        let id = self.asks.number();
        let before = locked(&self.question).put(id);
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
    pub(super) fn was_stored(&self, id: u32, stored: Stored, file: Descriptor) {
        // Without the file the bytes would be gone with the daemon.
        let mut files = locked(&self.files);
        files.kept.entry(stored.file).or_insert((file, id)).1 = id;
        drop(files);
        self.has(stored.spot());
        if !self.answers(id, Answer::Stored(stored)) {
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

    /// Whether it is the answer to a question in place of which another one was put: no thread
    /// looks for it. For the control thread.
    pub(super) fn is_too_late(&self, id: u32) -> bool {
        locked(&self.question).replaced.remove(&id)
    }

    fn answers(&self, id: u32, answer: Answer) -> bool {
        locked(&self.question).hears(id, answer)
    }

    /// The daemon has gone: no answer comes.
    pub(super) fn forget_question(&self) {
        locked(&self.question).forget();
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
    fn answer_to_a_question_of_before_is_too_late_and_the_next_is_not() {
        let mut question = Question::default();
        assert_eq!(question.put(1), None);
        assert_eq!(question.put(2), None);
        assert!(!question.hears(1, Answer::Refused));
        assert!(question.replaced.is_empty(), "no other answer comes to it");
        assert!(question.hears(2, Answer::Lost));
        assert_eq!(question.put(3), Some(Answer::Lost), "it was in time");
        assert!(question.replaced.is_empty());
    }

    #[test]
    fn no_question_is_answered_once_the_daemon_has_gone() {
        let mut question = Question::default();
        question.put(1);
        question.put(2);
        question.forget();
        assert_eq!((question.id, question.replaced.len()), (0, 0));
        question.put(3);
        question.hears(3, Answer::Refused);
        question.forget();
        assert_eq!(question.answer, Some(Answer::Refused), "it has come");
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

//! Ranges of the host store in files: while host memory is short and this process is out, the
//! daemon stores them, one at a time, and they are unmapped. A return fetches them again, one at a
//! time.
//!
//! A range stays mapped until the daemon says that its bytes are on the disk. The file's copy is
//! the valid one from then on, until all memory is back on the device.

use std::time::{Duration, Instant};

use gpushare_cuda_abi::cuda::{CUresult, CUstream};
use gpushare_protocol::wire::Stored;

use super::host::{AsAsked, Found, Given, Piece};
use super::memory::blocks;
use super::provide::{Unpinned, unpinned};
use crate::driver::vmm;
use crate::gate::seal;
use crate::guest::frames;
use crate::session::{Answer, Session};

/// How long a range is asked for again where the daemon has no room for it. The daemon waits for
/// that too, half as long.
const PATIENCE: Duration = Duration::from_secs(20);
/// The pause after the daemon had no room.
const PAUSE: Duration = Duration::from_millis(20);
/// How long an answer is waited for before the orders are looked at.
const MOMENT: Duration = Duration::from_millis(100);

/// A range that the daemon was asked to store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    range: AsAsked,
    /// The daemon's request for that.
    word: u32,
    /// The number of the question.
    question: u32,
}

/// What the daemon was asked to store.
#[derive(Debug, Default)]
pub(super) struct Storing {
    /// The range of which its answer is awaited.
    pub(super) asked: Option<Asked>,
    /// The request of the daemon's that it took back, or could not carry out.
    refused: u32,
    /// Ranges of which the driver does not let go. They are not stored again and again under one
    /// request of the daemon's, which has this number.
    pinned: (u32, Vec<AsAsked>),
}

/// Why a range that was stored stays in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stays {
    /// Other bytes are in it by now.
    Changed,
    /// The driver does not let go of it.
    Pinned,
}

/// The process is sealed and all of its memory is back. While others lack host memory for a move,
/// what this process has of it is given back: nothing runs that unpinning could wait for. Whether
/// any was.
pub(super) fn give_back_unused(session: &Session) -> bool {
    let is_asked = session.spill() != 0 && blocks().store.has_surplus(0);
    if is_asked {
        drop_unused(session);
    }
    is_asked
}

/// One look. `is_out`: all memory that can leave is away, and none is on its way. `is_fetching`: a
/// return takes the answer.
pub(super) fn store(session: &Session, storing: &mut Storing, is_out: bool, is_fetching: bool) {
    // The question of a return may have taken its place, or the daemon has gone.
    let asked = storing
        .asked
        .filter(|asked| session.is_asked(asked.question));
    storing.asked = asked;
    let answer = match is_fetching {
        true => None,
        false => session.take_answer(),
    };
    if answer.is_some() {
        storing.asked = None;
    }
    match (answer, asked) {
        (Some(Answer::Stored(stored)), Some(asked)) if is_out => {
            if let Err(why) = let_go(session, asked, stored) {
                storing.stays(why, asked);
                session.drop_answer(answer);
            }
        }
        (Some(Answer::Refused | Answer::Lost), Some(asked)) => storing.refused = asked.word,
        // A return does not wait for it any more, or the range is needed as it is.
        (answer, _) => session.drop_answer(answer),
    }
    forget_unused(session);
    let word = session.spill();
    if !is_out || word == 0 || word == storing.refused || session.is_asking() {
        return;
    }
    drop_unused(session);
    let but = storing.left_out(word);
    let next = blocks().store.next_to_store(but);
    if let Some((range, given)) = next {
        let question = session.ask_store(given.offset, given.bytes);
        storing.asked = question.map(|question| Asked {
            range,
            word,
            question,
        });
    }
}

impl Storing {
    /// Whether a range may be let go of at this look, or one be asked for. The daemon's answer may
    /// come after it has taken its request back.
    pub(super) fn may_let_go(&self, spill: u32) -> bool {
        spill != 0 || self.asked.is_some()
    }

    fn stays(&mut self, why: Stays, asked: Asked) {
        if why == Stays::Pinned {
            tracing::warn!("host memory stays pinned, and is not stored");
            self.left_out(asked.word);
            self.pinned.1.push(asked.range);
        }
    }

    /// The ranges that are not stored under this request of the daemon's.
    fn left_out(&mut self, word: u32) -> &[AsAsked] {
        if self.pinned.0 != word {
            self.pinned = (word, Vec::new());
        }
        &self.pinned.1
    }
}

/// Gives the memory of a stored range back. The process may have come back and left again since it
/// asked, and the file has the bytes of before.
///
/// # Errors
/// If that was not possible.
fn let_go(session: &Session, asked: Asked, stored: Stored) -> Result<(), Stays> {
    let unchanged = blocks().store.unchanged(asked.range);
    let unchanged = unchanged.filter(|(given, _)| given.bytes == stored.bytes);
    let (given, pinned) = unchanged.ok_or(Stays::Changed)?;
    if pinned.is_known() && unpinned(given.address) != Unpinned::Yes {
        return Err(Stays::Pinned);
    }
    blocks().store.is_stored(asked.range, stored);
    give_back(session, given);
    Ok(())
}

fn give_back(session: &Session, given: Given) {
    session.drops(given.address, given.offset, given.bytes);
}

/// Ranges in which nothing lies are given back too: others are short of memory.
fn drop_unused(session: &Session) {
    while let Some((given, pinned)) = { blocks().store.surplus(0) } {
        if pinned.is_known() && unpinned(given.address) != Unpinned::Yes {
            tracing::warn!("host memory stays pinned");
            // In no list any more: never used, never unmapped.
            continue;
        }
        give_back(session, given);
    }
}

/// Files' bytes that are back on the device, or freed.
fn forget_unused(session: &Session) {
    let mut some = false;
    while let Some(stored) = { blocks().store.unused_stored() } {
        session.forgets(stored);
        some = true;
    }
    if some && !blocks().store.has_stored() {
        session.close_files();
    }
}

/// A range that the daemon was asked to fetch.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    /// The number of the range, and of the question.
    range: usize,
    question: u32,
    /// Until when it is asked for again, once the daemon has had no room for it.
    end: Option<Instant>,
}

/// The range that a return has fetched last, and the one that it waits for.
#[derive(Debug)]
pub(super) struct Fetched {
    session: &'static Session,
    last: Option<(usize, Given)>,
    /// Also of a return that was given up: the next one may need the same range first.
    awaited: Option<Awaited>,
}

impl Fetched {
    pub(super) fn new(session: &'static Session) -> Self {
        Self {
            session,
            last: None,
            awaited: None,
        }
    }

    /// The address of a piece, for a copy in a stream. Fetches it first if it is in a file, instead
    /// of the one before, of which all copies are in the same stream.
    ///
    /// # Errors
    /// `NOT_READY` where the daemon has not answered yet; `OUT_OF_MEMORY` if it cannot be had now;
    /// [`seal::LOST`] if it is lost, and everything with it.
    pub(super) fn address(&mut self, piece: Piece, stream: CUstream) -> Result<usize, CUresult> {
        let found = { blocks().store.find(piece) };
        let (number, stored, offset) = match found {
            Found::At(address) => return Ok(address),
            Found::Nowhere => return Err(CUresult::INVALID_VALUE),
            Found::Stored(number, stored, offset) => (number, stored, offset),
        };
        let offset = usize::try_from(offset).unwrap_or(0);
        if let Some((last, given)) = self.last
            && last == number
        {
            return Ok(given.address + offset);
        }
        vmm::await_stream(stream)?;
        self.release();
        match self.fetch(number, stored) {
            Some(Answer::Fetched(address, place, bytes)) => {
                let given = Given {
                    address,
                    offset: place,
                    bytes,
                };
                self.last = Some((number, given));
                if bytes < stored.bytes {
                    return Err(CUresult::OUT_OF_MEMORY);
                }
                Ok(address + offset)
            }
            Some(Answer::Lost) => {
                tracing::error!("memory in a file is lost: all calls fail from now on");
                seal::lose();
                Err(seal::LOST)
            }
            _ if self.awaited.is_some() => Err(CUresult::NOT_READY),
            _ => Err(CUresult::OUT_OF_MEMORY),
        }
    }

    /// Asks for a range, unless the daemon was asked for it already. The answer, if it comes within
    /// a moment. It may take as long as the disk does: a question that is put again is answered
    /// behind the first one. `None` too where there is no daemon.
    fn fetch(&mut self, range: usize, stored: Stored) -> Option<Answer> {
        let (session, now) = (self.session, Instant::now());
        let before = self.awaited.take();
        let before = before.filter(|one| one.range == range && session.is_asked(one.question));
        let awaited = match before {
            Some(awaited) => awaited,
            None => Awaited {
                range,
                question: session.ask_fetch(stored)?,
                end: None,
            },
        };
        if session.awaits(awaited.question, now + MOMENT) {
            self.awaited = Some(awaited);
            return None;
        }
        let answer = session.take_answer();
        let now = Instant::now();
        let end = awaited.end.unwrap_or(now + PATIENCE);
        if answer != Some(Answer::Refused) || now + PAUSE >= end {
            return answer;
        }
        frames::sleep(PAUSE);
        self.awaited = Some(Awaited {
            question: session.ask_fetch(stored)?,
            end: Some(end),
            range,
        });
        None
    }

    /// Whether the daemon was asked for a range that has not come yet.
    pub(super) fn is_asked(&self) -> bool {
        self.awaited.is_some()
    }

    /// Waits a moment for the range that the daemon was asked for. Whether it is still to come.
    pub(super) fn is_to_come(&self) -> bool {
        let end = Instant::now() + MOMENT;
        let question = self.awaited.map(|one| one.question);
        question.is_some_and(|question| self.session.awaits(question, end))
    }

    /// The last one is used no more. No copy from it is under way.
    pub(super) fn release(&mut self) {
        if let Some((_, given)) = self.last.take() {
            give_back(self.session, given);
        }
    }

    /// A copy from the last one may be under way: it stays mapped for ever.
    pub(super) fn abandon(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::super::host::Store;
    use super::*;

    fn asked() -> Asked {
        let mut store = Store::default();
        store.add(Given {
            address: 0,
            offset: 0,
            bytes: 64,
        });
        let _ = store.take(64);
        let (range, _) = store.next_to_store(&[]).expect("bytes lie in it");
        Asked {
            range,
            word: 1,
            question: 1,
        }
    }

    #[test]
    fn late_answer_lets_go_of_a_range_though_the_daemon_asks_no_more() {
        let storing = Storing {
            asked: Some(asked()),
            ..Storing::default()
        };
        assert!(storing.may_let_go(0));
    }

    #[test]
    fn no_range_is_let_go_of_where_none_is_asked_for() {
        let storing = Storing::default();
        assert!(!storing.may_let_go(0));
        assert!(storing.may_let_go(1));
    }
}

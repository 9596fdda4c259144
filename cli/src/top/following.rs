//! Events for `top`, over a connection of their own. Where too many follow already, the past now
//! and then, and the reason.

use crate::failure::Failure;
use crate::threads;
use gpushare_client::{Talk, TalkError};
use gpushare_protocol::wire::EventRecord;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Past events to begin with.
const PAST: u32 = 50;
/// How long a daemon that has left is not looked for.
const LOST: Duration = Duration::from_secs(1);
/// How long a daemon that has refused is not asked again.
const REFUSED: Duration = Duration::from_secs(10);

/// A message about events to the screen.
#[derive(Debug, PartialEq)]
pub(super) enum Told {
    Event(EventRecord),
    /// Why no event is told when it happens.
    Refused(String),
}

/// Tells of events as they come.
pub(super) fn follow(talk: &Talk) -> Result<Receiver<Told>, Failure> {
    // An event may come at any time.
    let talk = Talk::connect(talk.folder()).map_err(Failure::ours)?;
    let (sender, receiver) = channel();
    threads::begin(move || {
        let _ = tell(talk, &sender);
    })?;
    Ok(receiver)
}

/// Until nothing hears of it: the screen has ended. `None` is that.
fn tell(mut talk: Talk, sender: &Sender<Told>) -> Option<()> {
    let mut is_said = false;
    loop {
        let told = |event| sender.send(Told::Event(event)).map_err(|_| None);
        let refused = match talk.follow::<Option<TalkError>>(PAST, told) {
            Err(None) => return None,
            Err(Some(why)) => talk.last(PAST).ok().map(|past| (why, past)),
            Ok(()) => None,
        };
        // A connection that has broken tells nothing of the past.
        let rest = if refused.is_some() { REFUSED } else { LOST };
        let was_said = std::mem::replace(&mut is_said, refused.is_some());
        if let Some((why, past)) = refused {
            for event in past {
                sender.send(Told::Event(event)).ok()?;
            }
            if !was_said {
                sender.send(Told::Refused(why.message)).ok()?;
            }
        }
        std::thread::sleep(rest);
        if let Ok(next) = talk.again() {
            talk = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_protocol::wire::{
        Control, ControlReply, Decoder, ErrorCode, Hello, WireError, decode, encode,
    };
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    fn record(number: u64) -> EventRecord {
        EventRecord {
            instance: 7,
            number,
            at_ms: 0,
            kind: "set".to_owned(),
            tenant: None,
            device: None,
            text: String::new(),
            facts: Vec::new(),
        }
    }

    /// A daemon that remembers two events, for one connection.
    fn serve(mut socket: &UnixStream, refuses: bool) {
        let (mut decoder, mut buffer) = (Decoder::default(), [0; 4096]);
        let mut greeted = false;
        loop {
            let mut told = Vec::new();
            while let Some((id, body)) = decoder.next_frame().unwrap() {
                if !std::mem::replace(&mut greeted, true) {
                    encode(0, &Hello::of_this_build(7), &mut told).unwrap();
                    continue;
                }
                let mut answer = |reply| encode(id, &reply, &mut told).unwrap();
                if let Control::Follow { .. } = decode(id, &body).unwrap() {
                    if refuses {
                        let why = WireError::retry(ErrorCode::Full, "too many");
                        answer(ControlReply::Error(why));
                    }
                    (1..=2).for_each(|number| answer(ControlReply::Event(record(number))));
                } else {
                    answer(ControlReply::Done);
                }
            }
            let _ = socket.write_all(&told);
            match socket.read(&mut buffer) {
                Ok(bytes @ 1..) => decoder.push(&buffer[..bytes]),
                _ => return,
            }
        }
    }

    /// The first that is told of events of such a daemon.
    fn told(refuses: bool) -> Vec<Told> {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(gpushare_client::CONTROL)).unwrap();
        std::thread::spawn(move || {
            listener
                .incoming()
                .map_while(Result::ok)
                .for_each(|socket| serve(&socket, refuses));
        });
        let (sender, receiver) = channel();
        let talk = Talk::connect(folder.path()).unwrap();
        std::thread::spawn(move || tell(talk, &sender));
        let told = std::iter::from_fn(|| receiver.recv_timeout(Duration::from_secs(5)).ok());
        told.take(2 + usize::from(refuses)).collect()
    }

    #[test]
    fn top_is_told_the_past_and_the_reason_where_too_many_follow() {
        let past = [1, 2].map(|number| Told::Event(record(number)));
        let why = Told::Refused("too many".to_owned());
        assert_eq!(
            told(true),
            past.into_iter().chain([why]).collect::<Vec<_>>()
        );
    }

    #[test]
    fn top_is_told_no_reason_where_it_may_follow() {
        assert_eq!(
            told(false),
            [1, 2].map(|number| Told::Event(record(number)))
        );
    }
}

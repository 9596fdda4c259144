//! A server for one client at a time or a few: GET and HEAD, one request a connection, everything
//! bounded.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::places::{Place, Places};

/// The longest head of a request, in bytes.
const HEAD: usize = 8 << 10;
/// The most header fields of a request.
const FIELDS: usize = 64;
/// Longest a client may take for its request, and for reading the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The path of a scrape.
pub(crate) const METRICS: &str = "/metrics";
/// The path of the question whether the server is alive.
pub(crate) const HEALTH: &str = "/healthz";

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The path, without what follows a question mark.
    pub path: String,
    /// The `Accept` header.
    pub accept: String,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status, such as 200.
    pub status: u16,
    /// The media type.
    pub media_type: &'static str,
    /// The body: one text for all that are sent it.
    pub body: Arc<String>,
}

impl Answer {
    /// The text that was asked for.
    pub(crate) fn found(media_type: &'static str, text: String) -> Self {
        Self {
            status: 200,
            media_type,
            body: Arc::new(text),
        }
    }

    /// A status with one line of text.
    #[must_use]
    pub fn plain(status: u16, line: &str) -> Self {
        Self {
            status,
            media_type: "text/plain; charset=utf-8",
            body: Arc::new(format!("{line}\n")),
        }
    }
}

/// Serves until the listener fails.
///
/// # Errors
/// Its failure. A connection that fails is its client's affair.
pub fn serve<F>(listener: &TcpListener, answer: F) -> io::Result<()>
where
    F: Fn(&Ask) -> Answer + Send + Sync + 'static,
{
    let (answer, places) = (Arc::new(answer), Places::default());
    loop {
        let socket = match listener.accept() {
            Ok((socket, _)) => Arc::new(socket),
            Err(error) if passes(&error) => {
                // No descriptor is left, perhaps: others will be closed.
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            Err(error) => return Err(error),
        };
        let Some(place) = places.take(&socket) else {
            continue;
        };
        let answer = Arc::clone(&answer);
        // Where no thread can be had, the place is free again at once.
        let began = std::thread::Builder::new().spawn(move || {
            let _ = talk(&socket, &place, answer.as_ref());
        });
        if began.is_err() {
            places.lack_thread();
        }
    }
}

/// Whether the next connection may be accepted all the same.
fn passes(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    let kind = matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted | WouldBlock
    );
    // ENFILE, EMFILE, ENOBUFS, ENOMEM.
    kind || matches!(error.raw_os_error(), Some(23 | 24 | 105 | 12))
}

fn talk(socket: &TcpStream, place: &Place, answer: &dyn Fn(&Ask) -> Answer) -> io::Result<()> {
    let head = head(socket)?;
    let asks = |path| matches!(&head, Head::Asks { ask, .. } if ask.path == path);
    // The answer costs nothing, and whoever does not get it ends the server.
    if !asks(HEALTH) && !place.has_asked(asks(METRICS)) {
        return Ok(());
    }
    let (reply, head) = match head {
        Head::Asks { ask, head } => (answer(&ask), head),
        Head::Wrong(status, line) => (Answer::plain(status, line), false),
    };
    say(socket, &reply, head)
}

enum Head {
    Asks {
        ask: Ask,
        /// Only the answer's head is wanted.
        head: bool,
    },
    Wrong(u16, &'static str),
}

/// Reads the head of a request, for a bounded time in all.
fn head(mut socket: &TcpStream) -> io::Result<Head> {
    let end = Instant::now() + PATIENCE;
    let mut read = Vec::new();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Head::Wrong(408, "the request took too long"));
        }
        socket.set_read_timeout(Some(left))?;
        let mut some = [0; 1024];
        match socket.read(&mut some) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => read.extend_from_slice(&some[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        }
        if let Some(head) = parse(&read) {
            return Ok(head);
        }
        if read.len() > HEAD {
            return Ok(Head::Wrong(431, "the request's head is too long"));
        }
    }
}

/// `None`: there is more to come.
fn parse(read: &[u8]) -> Option<Head> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(read) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => {
            return Some(Head::Wrong(431, "the request has too many fields"));
        }
        Err(_) => return Some(Head::Wrong(400, "this is no HTTP request")),
    }
    let head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Some(Head::Wrong(405, "only GET and HEAD are answered")),
    };
    let path = request.path.unwrap_or("/");
    let accepts = request.headers.iter();
    let accepts = accepts.filter(|field| field.name.eq_ignore_ascii_case("accept"));
    let accepts = accepts.map(|field| String::from_utf8_lossy(field.value).into_owned());
    let ask = Ask {
        path: path.split('?').next().unwrap_or(path).to_owned(),
        accept: accepts.collect::<Vec<_>>().join(","),
    };
    Some(Head::Asks { ask, head })
}

fn say(mut socket: &TcpStream, reply: &Answer, head: bool) -> io::Result<()> {
    let reason = match reply.status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Error",
    };
    let allow = if reply.status == 405 {
        "Allow: GET, HEAD\r\n"
    } else {
        ""
    };
    let text = format!(
        "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{allow}Connection: close\r\n\r\n",
        reply.status,
        reply.media_type,
        reply.body.len(),
    );
    let end = Instant::now() + PATIENCE;
    let left = || end.saturating_duration_since(Instant::now());
    // One after the other: a body may have megabytes, and each slow reader would have two of it.
    let body = if head { "" } else { reply.body.as_str() };
    for part in [&*text, body] {
        put(part.as_bytes(), left, |rest, left| {
            socket.set_write_timeout(Some(left))?;
            socket.write(rest)
        })?;
    }
    Ok(())
}

/// Writes all, for a bounded time in all: a client that takes a little now and then would keep its
/// place for hours. `write` is given what is left of the text and of the time.
fn put(
    mut text: &[u8],
    left: impl Fn() -> Duration,
    mut write: impl FnMut(&[u8], Duration) -> io::Result<usize>,
) -> io::Result<()> {
    while !text.is_empty() {
        let left = left();
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match write(text, left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => text = text.get(written..).unwrap_or(&[]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn parsed(text: &str) -> Option<Result<(Ask, bool), u16>> {
        parse(text.as_bytes()).map(|head| match head {
            Head::Asks { ask, head } => Ok((ask, head)),
            Head::Wrong(status, _) => Err(status),
        })
    }

    #[test]
    fn a_request_is_understood_once_its_head_is_whole() {
        let text = "GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\naccept: text/plain\r\n\r\n";
        let ask = Ask {
            path: "/metrics".to_owned(),
            accept: "text/plain".to_owned(),
        };
        assert_eq!(parsed(text), Some(Ok((ask.clone(), false))));
        assert_eq!(parsed(&text.replace("GET", "HEAD")), Some(Ok((ask, true))));
        for cut in 1..text.len() {
            assert_eq!(parsed(&text[..cut]), None, "{cut}");
        }
    }

    /// It may have many megabytes, and several readers.
    #[test]
    fn an_answers_text_is_not_copied_for_it_or_for_its_readers() {
        let text = "a 1\n".repeat(1000);
        let at = text.as_ptr();
        let answer = Answer::found("text/plain", text);
        assert_eq!(answer.clone().body.as_ptr(), at);
        assert_eq!(answer.body.len(), 4000);
    }

    #[test]
    fn a_client_that_takes_a_little_now_and_then_is_left_in_time() {
        let taken_of = |text: &[u8]| {
            let (clock, mut taken) = (Cell::new(Duration::ZERO), 0);
            let left = || PATIENCE.saturating_sub(clock.get());
            let put = put(text, left, |rest, left| {
                assert!(rest.len() + taken == text.len() && left <= PATIENCE);
                clock.set(clock.get() + Duration::from_secs(1));
                taken += 1;
                Ok(1)
            });
            (put.map_err(|error| error.kind()), taken)
        };
        assert_eq!(taken_of(b"0123456789"), (Ok(()), 10));
        assert_eq!(taken_of(b"0123456789a"), (Err(io::ErrorKind::TimedOut), 10));
    }

    #[test]
    fn a_client_that_has_gone_is_left_and_an_interruption_is_not_the_end() {
        let mut answers = vec![
            Err(io::ErrorKind::BrokenPipe.into()),
            Ok(2),
            Err(io::ErrorKind::Interrupted.into()),
        ];
        let next = |_: &[u8], _| answers.pop().unwrap_or(Ok(0));
        let put = put(b"text", || PATIENCE, next);
        assert_eq!(put.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(answers.is_empty());
    }

    #[test]
    fn what_is_no_get_is_refused_by_a_status() {
        assert_eq!(parsed("POST / HTTP/1.1\r\n\r\n"), Some(Err(405)));
        assert_eq!(parsed("\u{1}\u{2}\r\n\r\n"), Some(Err(400)));
        let many = "a: b\r\n".repeat(FIELDS + 1);
        assert_eq!(
            parsed(&format!("GET / HTTP/1.1\r\n{many}\r\n")),
            Some(Err(431))
        );
    }
}

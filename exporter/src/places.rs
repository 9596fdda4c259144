//! Places for the connections that are served at a time. A connection without a request makes
//! room for a newer one, so that a local program that connects and is silent keeps no scrape out.
//! Scrapes have places of their own, so that one that asks for something else does not either.

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections at a time. More than are answered: while a client's request is on its way, many
/// others would have to connect to take its place. The unit's `TasksMax` is twice as many: the
/// thread of one that made room ends a moment later.
const MOST: usize = 64;
/// Scrapes answered at a time, and as many other requests. A further one is closed. Both together
/// leave places for those that have not asked yet.
const MOST_ASKED: usize = 16;
const _: () = assert!(2 * MOST_ASKED < MOST);

/// All places.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(Arc<Mutex<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    last: u64,
    /// The connections, oldest first.
    all: BTreeMap<u64, Held>,
}

/// A connection that has a place.
#[derive(Debug)]
enum Held {
    /// Its request is not whole.
    Silent(Arc<TcpStream>),
    /// It is answered.
    Asked {
        /// Whether that is a scrape.
        is_scrape: bool,
    },
}

/// One place, free again when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    number: u64,
    places: Places,
}

impl Places {
    /// A place for a connection: where all are taken, that of the oldest that has not asked yet,
    /// which ends.
    pub(crate) fn take(&self, socket: &Arc<TcpStream>) -> Option<Place> {
        let mut taken = self.taken();
        if taken.all.len() >= MOST && !taken.ends_oldest() {
            return None;
        }
        taken.last += 1;
        let number = taken.last;
        taken.all.insert(number, Held::Silent(Arc::clone(socket)));
        let places = self.clone();
        Some(Place { number, places })
    }

    /// A connection has no thread: the next one is to have that of the oldest that has not asked.
    pub(crate) fn lack_thread(&self) {
        self.taken().ends_oldest();
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Ends the oldest connection that has not asked yet. `false` if there is none.
    fn ends_oldest(&mut self) -> bool {
        let mut silent = self.all.iter().filter_map(|(number, held)| match held {
            Held::Silent(socket) => Some((*number, Arc::clone(socket))),
            Held::Asked { .. } => None,
        });
        let Some((number, socket)) = silent.next() else {
            return false;
        };
        self.all.remove(&number);
        // Its thread reads the end.
        let _ = socket.shutdown(Shutdown::Both);
        true
    }
}

impl Place {
    /// The head of its request is whole, and it is a scrape or not. Whether it is answered.
    pub(crate) fn has_asked(&self, is_scrape: bool) -> bool {
        let mut taken = self.places.taken();
        let is_like =
            |held: &&Held| matches!(held, Held::Asked { is_scrape: of } if *of == is_scrape);
        if taken.all.values().filter(is_like).count() >= MOST_ASKED {
            return false;
        }
        // A connection that was closed to make room is not among them.
        let own = taken.all.get_mut(&self.number);
        own.is_some_and(|held| {
            let was = std::mem::replace(held, Held::Asked { is_scrape });
            matches!(was, Held::Silent(_))
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().all.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::net::TcpListener;

    /// A connection that has come, and its client.
    fn connection() -> (Arc<TcpStream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let at = listener.local_addr().expect("it is bound");
        let client = TcpStream::connect(at).expect("it listens");
        let (came, _) = listener.accept().expect("it has come");
        (Arc::new(came), client)
    }

    #[test]
    fn the_unit_has_threads_for_all_places_twice() {
        let unit = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../packaging/gpushare-exporter.service"
        );
        let unit = std::fs::read_to_string(unit).expect("it is in the tree");
        let tasks = unit.lines().find_map(|line| line.strip_prefix("TasksMax="));
        let tasks: usize = tasks.expect("a bound").parse().expect("a number");
        assert!(tasks >= 2 * MOST, "{tasks}");
    }

    #[test]
    fn the_oldest_silent_one_makes_room_where_no_thread_is_left() {
        let (places, (socket, mut client)) = (Places::default(), connection());
        let first = places.take(&socket).expect("a place");
        places.lack_thread();
        let patience = Some(std::time::Duration::from_secs(30));
        client.set_read_timeout(patience).expect("a socket");
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).expect("it was ended");
        assert!(bytes.is_empty() && !first.has_asked(false));
        // A connection that has asked is left to its client.
        let (socket, _client) = connection();
        let second = places.take(&socket).expect("a place");
        assert!(second.has_asked(false));
        places.lack_thread();
        assert_eq!(places.taken().all.len(), 1);
    }

    #[test]
    fn so_many_are_answered_at_a_time_and_another_after_one_of_them() {
        for is_scrape in [false, true] {
            let (places, (socket, _client)) = (Places::default(), connection());
            let take = || places.take(&socket).expect("a place");
            let mut asked: Vec<Place> = (0..MOST_ASKED).map(|_| take()).collect();
            assert!(asked.iter().all(|place| place.has_asked(is_scrape)));
            let next = take();
            assert!(!next.has_asked(is_scrape));
            drop(asked.pop());
            assert!(next.has_asked(is_scrape));
            assert_eq!(places.taken().all.len(), MOST_ASKED);
        }
    }

    #[test]
    fn scrapes_and_other_requests_have_places_of_their_own() {
        let (places, (socket, _client)) = (Places::default(), connection());
        let take = || places.take(&socket).expect("a place");
        let places_of = |is_scrape: bool| {
            let asked: Vec<Place> = (0..MOST_ASKED).map(|_| take()).collect();
            assert!(asked.iter().all(|place| place.has_asked(is_scrape)));
            asked
        };
        let _both = [places_of(false), places_of(true)];
        assert!(!take().has_asked(false) && !take().has_asked(true));
    }
}

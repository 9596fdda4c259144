//! Places for the connections that are served at a time. A connection without a request makes
//! room for a newer one, so that a local program that connects and is silent keeps no scrape out.

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections at a time. More than are answered: while a client's request is on its way, many
/// others would have to connect to take its place. The unit's `TasksMax` is twice as many: the
/// thread of one that made room ends a moment later.
const MOST: usize = 64;
/// Connections answered at a time. A further one is closed.
const MOST_ASKED: usize = 16;

/// All places.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(Arc<Mutex<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    last: u64,
    /// The connections, oldest first; `None` once its request is whole.
    all: BTreeMap<u64, Option<Arc<TcpStream>>>,
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
        taken.all.insert(number, Some(Arc::clone(socket)));
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
        let mut silent = self.all.iter().filter(|(_, socket)| socket.is_some());
        let Some(number) = silent.next().map(|(number, _)| *number) else {
            return false;
        };
        if let Some(Some(socket)) = self.all.remove(&number) {
            // Its thread reads the end.
            let _ = socket.shutdown(Shutdown::Both);
        }
        true
    }
}

impl Place {
    /// The head of its request is whole. Whether it is answered.
    pub(crate) fn has_asked(&self) -> bool {
        let mut taken = self.places.taken();
        let asked = taken.all.values().filter(|socket| socket.is_none()).count();
        if asked >= MOST_ASKED {
            return false;
        }
        let own = taken.all.get_mut(&self.number);
        own.is_some_and(|socket| socket.take().is_some())
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
        assert!(bytes.is_empty() && !first.has_asked());
        // A connection that has asked is left to its client.
        let (socket, _client) = connection();
        let second = places.take(&socket).expect("a place");
        assert!(second.has_asked());
        places.lack_thread();
        assert_eq!(places.taken().all.len(), 1);
    }

    #[test]
    fn so_many_are_answered_at_a_time_and_another_after_one_of_them() {
        let (places, (socket, _client)) = (Places::default(), connection());
        let take = || places.take(&socket).expect("a place");
        let mut asked: Vec<Place> = (0..MOST_ASKED).map(|_| take()).collect();
        assert!(asked.iter().all(Place::has_asked));
        let next = take();
        assert!(!next.has_asked());
        drop(asked.pop());
        assert!(next.has_asked());
        assert_eq!(places.taken().all.len(), MOST_ASKED);
    }
}

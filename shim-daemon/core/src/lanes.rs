//! Which thread does which work that another process can make wait.
//!
//! A descriptor of a tenant's, or memory that a tenant shares, may keep a thread that touches it
//! for as long as the tenant likes. So each owner has a lane: its work is done in the order in
//! which it came, by one thread at a time, and waits only for itself. Threads are bounded, in all
//! and for one user.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::TenantId;

/// The most threads. Each takes a stack and a place in the process table, and no time while it
/// waits.
const MOST: usize = 128;
/// The most threads of a user that is not root: a user can make tenants without number.
const MOST_OF_A_USER: usize = 8;
/// The most threads at one door, or of one container, whatever the numbers of its users: a program
/// that may choose them, as root in a container may, has thousands.
const MOST_OF_A_DOOR: usize = 8;
/// The most threads for all doors, containers and commands. The others are for what tenants share
/// with the daemon: none allocates or frees memory without.
const MOST_OF_CALLERS: usize = 64;
/// The most threads for what tenants of all users but root share with the daemon: a program may
/// have users without end. As many are left for root's tenants and those in containers, whatever
/// the callers do.
const MOST_OF_USERS: usize = 32;
/// The most work of one owner that waits before more of it is put off: as many descriptors of the
/// daemon's. A process presents 64 files in one burst.
const ROOM: usize = 256;

/// Of whom a lane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The user. Root's lanes are those of containers too, and of the daemon itself.
    pub user: u32,
    /// Which of the user's.
    pub part: Part,
}

/// One of a user's lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// What the daemon made itself.
    Daemon,
    /// The user's commands.
    Commands,
    /// Connections at a tenant's socket.
    Door(TenantId),
    /// Connections of one container, by a number that stands for it.
    Container(u64),
    /// What a tenant's processes share with the daemon.
    Shared(TenantId),
}

/// The lanes.
#[derive(Debug)]
pub struct Lanes<Work> {
    lanes: BTreeMap<Owner, Lane<Work>>,
    /// Owners of work of which no thread does any now, in the order of their turns.
    ready: VecDeque<Owner>,
    /// Threads of each user that work now.
    working: BTreeMap<u32, usize>,
    /// Threads that work now at each door and of each container, and for commands.
    calling: BTreeMap<Part, usize>,
    /// Threads that work now at what tenants of users but root share with the daemon.
    of_users: usize,
    threads: usize,
}

#[derive(Debug)]
struct Lane<Work> {
    waiting: VecDeque<Work>,
    /// A thread does some of it now.
    works: bool,
}

impl<Work> Default for Lanes<Work> {
    fn default() -> Self {
        Self {
            lanes: BTreeMap::new(),
            ready: VecDeque::new(),
            working: BTreeMap::new(),
            calling: BTreeMap::new(),
            of_users: 0,
            threads: 0,
        }
    }
}

impl<Work> Lanes<Work> {
    /// Adds work of an owner.
    pub fn add(&mut self, owner: Owner, work: Work) {
        let lane = self.lanes.entry(owner).or_insert_with(|| Lane {
            waiting: VecDeque::new(),
            works: false,
        });
        lane.waiting.push_back(work);
        if !lane.works && lane.waiting.len() == 1 {
            self.ready.push_back(owner);
        }
    }

    /// Whether one more thread is to be started, which is counted from now on.
    pub fn starts(&mut self) -> bool {
        let free = self.threads - self.working.values().sum::<usize>();
        let ready = self.ready.iter().filter(|owner| self.may_work(**owner));
        let starts = self.threads < MOST && free < ready.count();
        self.threads += usize::from(starts);
        starts
    }

    /// The next work for a thread that has none. `None`: the thread ends.
    pub fn take(&mut self) -> Option<(Owner, Work)> {
        let at = self.ready.iter().position(|owner| self.may_work(*owner));
        let owner = at.and_then(|at| self.ready.remove(at));
        let lane = owner.and_then(|owner| Some((owner, self.lanes.get_mut(&owner)?)));
        let Some((owner, lane)) = lane else {
            self.ends();
            return None;
        };
        let work = lane.waiting.pop_front()?;
        lane.works = true;
        *self.working.entry(owner.user).or_default() += 1;
        if owner.part.is_of_callers() {
            *self.calling.entry(owner.part).or_default() += 1;
        }
        self.of_users += usize::from(owner.is_users_tenant());
        Some((owner, work))
    }

    /// A thread has done the work that it had.
    pub fn done(&mut self, owner: Owner) {
        one_less(&mut self.working, &owner.user);
        one_less(&mut self.calling, &owner.part);
        self.of_users -= usize::from(owner.is_users_tenant());
        if let Some(lane) = self.lanes.get_mut(&owner) {
            lane.works = false;
            match lane.waiting.is_empty() {
                true => drop(self.lanes.remove(&owner)),
                false => self.ready.push_back(owner),
            }
        }
    }

    /// A thread has ended, or could not be started.
    pub fn ends(&mut self) {
        self.threads = self.threads.saturating_sub(1);
    }

    /// Whether more of an owner's work is to be put off.
    #[must_use]
    pub fn is_full(&self, owner: Owner) -> bool {
        let lane = self.lanes.get(&owner);
        lane.is_some_and(|lane| lane.waiting.len() >= ROOM)
    }

    /// Whether all of an owner's work is done.
    #[must_use]
    pub fn is_idle(&self, owner: Owner) -> bool {
        !self.lanes.contains_key(&owner)
    }

    fn may_work(&self, owner: Owner) -> bool {
        let working = self.working.get(&owner.user).copied().unwrap_or(0);
        let of_user = owner.user == 0 || working < MOST_OF_A_USER;
        let of_users = !owner.is_users_tenant() || self.of_users < MOST_OF_USERS;
        of_user && of_users && (!owner.part.is_of_callers() || self.may_call(owner.part))
    }

    fn may_call(&self, part: Part) -> bool {
        let here = self.calling.get(&part).copied().unwrap_or(0);
        let is_door = part != Part::Commands;
        let all: usize = self.calling.values().sum();
        all < MOST_OF_CALLERS && (!is_door || here < MOST_OF_A_DOOR)
    }
}

impl Owner {
    /// Whether this is what a tenant of a user but root shares with the daemon.
    fn is_users_tenant(self) -> bool {
        self.user != 0 && matches!(self.part, Part::Shared(_))
    }
}

impl Part {
    /// Whether this is what callers bring, and not what tenants share.
    fn is_of_callers(self) -> bool {
        match self {
            Self::Commands | Self::Door(_) | Self::Container(_) => true,
            Self::Daemon | Self::Shared(_) => false,
        }
    }
}

fn one_less<Key: Ord>(counts: &mut BTreeMap<Key, usize>, key: &Key) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

//! The other end of a connection as it is counted: whose lane closes what it brings, the payer of
//! its requests, and among whose connections it takes a place ([ADR
//! 193](../../../docs/adr/0193-containers-are-counted-apart.md)).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use gpushare_core::lanes::{Owner, Part};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;

use super::budget::Payer;
use super::session::Role;
use super::users_crowd;
use crate::cgroup::of_machine;
use crate::node::{CHOSEN, Node};
use crate::peer::cgroup_of;

/// The other end of a connection, when it connected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    /// The socket that it came on.
    pub(super) role: Role,
    /// Its effective user.
    user: u32,
    /// Whether the socket is intended for that user: the tenant's own, or an unrestricted one.
    is_own: bool,
    /// The user whose tenant's socket it is. `None`: the machine's, or no tenant's.
    owner: Option<u32>,
    /// A number that stands for its container, where it is told apart by that. Many containers'
    /// programs have one user, and many containers of a class one socket; no program gets out of
    /// its container's cgroup.
    container: Option<u64>,
}

/// Connections that are counted together, and apart from all others. Its users are counted apart
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// All at this socket.
    Socket(Role),
    /// Those of one container at the socket of a class, which it shares with others.
    InClass { class: u64, container: u64 },
}

impl Caller {
    /// Reads the facts.
    ///
    /// # Errors
    /// If the socket is no connection.
    pub(super) fn of(socket: &UnixStream, role: Role, node: &Node) -> io::Result<Self> {
        let peer = getsockopt(&socket.as_fd(), PeerCredentials)?;
        let user = peer.uid();
        let is_own = match role {
            Role::Command => may_do_everything(user),
            Role::Client(tenant) => node.is_trusted(tenant, user),
            Role::Class(_) => false,
        };
        let owner = match role {
            Role::Client(tenant) => node.owner(tenant),
            Role::Command | Role::Class(_) => None,
        };
        let is_counted = !is_own && role != Role::Command;
        let container = is_counted.then(|| container_of(peer.pid().unsigned_abs()));
        Ok(Self {
            role,
            user,
            is_own,
            owner,
            container: container.flatten(),
        })
    }

    /// For tests: a command of this user.
    #[cfg(test)]
    pub(super) fn commands(user: u32) -> Self {
        Self {
            role: Role::Command,
            user,
            is_own: false,
            owner: None,
            container: None,
        }
    }

    /// The owner of what the connection brings.
    pub(super) fn owner(&self) -> Owner {
        let part = match self.role {
            Role::Command => Part::Commands,
            Role::Client(tenant) => Part::Door(tenant),
            Role::Class(_) => Part::Container(self.container.unwrap_or(0)),
        };
        let user = self.user;
        Owner { user, part }
    }

    /// The user, unless the socket is intended for that user.
    pub(super) fn user(&self) -> Option<u32> {
        (!self.is_own).then_some(self.user)
    }

    /// The user whose commands come here, unless unrestricted.
    pub(super) fn commander(&self) -> Option<u32> {
        self.user().filter(|_| self.role == Role::Command)
    }

    /// The payer of a connection on a tenant's or a class's socket.
    pub(super) fn payer(&self) -> Option<Payer> {
        match (self.role, self.container) {
            (Role::Command, _) => None,
            (Role::Client(tenant), _) if self.is_own => Some(Payer::Tenant(tenant)),
            (_, Some(container)) => Some(Payer::Container(container)),
            (role, None) => Some(Payer::User(role, self.user)),
        }
    }

    /// As it counts over all sockets: at a user's tenant for that user, unless it is another
    /// user's. Those would else take all the user's places.
    pub(super) fn over_all(&self) -> users_crowd::Caller {
        match (self.role, self.owner) {
            (Role::Command, _) if self.is_own => users_crowd::Caller::Root,
            (_, Some(owner)) if self.is_own => users_crowd::Caller::OfUser(owner),
            (_, Some(_)) => users_crowd::Caller::OfUser(self.user),
            (_, None) => users_crowd::Caller::Other,
        }
    }

    /// Among whose bytes its messages are counted: a user's over all sockets. A program may have
    /// its user among very many (`/etc/subuid`); those are one here.
    pub(super) fn holder(&self) -> Payer {
        let user = |user: u32| Payer::Owner(user.min(CHOSEN));
        match (self.role, self.container) {
            (Role::Client(tenant), _) if self.is_own => {
                self.owner.map_or(Payer::Tenant(tenant), user)
            }
            (_, Some(container)) => Payer::Container(container),
            (_, None) => user(self.user),
        }
    }

    /// Among which connections it takes a place.
    pub(super) fn place(&self) -> Place {
        match (self.role, self.container) {
            (Role::Class(class), Some(container)) => Place::InClass { class, container },
            (role, _) => Place::Socket(role),
        }
    }
}

/// A number that stands for the container of the process of this pid. `None`: it is in none that a
/// runtime made, or has ended.
fn container_of(pid: u32) -> Option<u64> {
    let cgroup = cgroup_of(pid).ok()?;
    let container = of_machine(&cgroup)?;
    let mut hasher = DefaultHasher::new();
    container.hash(&mut hasher);
    Some(hasher.finish())
}

/// Whether commands of this user may change other users' tenants too: root, and the daemon's own
/// user.
pub(super) fn may_do_everything(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use gpushare_core::{Nanos, TenantId};

    use super::super::budget::Connects;
    use super::super::crowd::{Admittance, Crowd};
    use super::*;

    const NOW: Nanos = Nanos::secs(1);

    /// A program of user 1000 that is no intended user of the socket.
    fn program(role: Role, container: Option<u64>) -> Caller {
        Caller {
            role,
            user: 1000,
            is_own: false,
            owner: None,
            container,
        }
    }

    /// As many connections as make the payer wait.
    fn flood(connects: &mut Connects, caller: &Caller) {
        let payer = caller.payer().unwrap();
        while connects.count(NOW, payer).is_none() {}
    }

    #[test]
    fn a_container_that_floods_delays_no_container_of_the_same_user() {
        let role = |tenant| Role::Client(TenantId(tenant));
        for (floods, other) in [
            (program(role(1), Some(7)), program(role(2), Some(8))),
            (
                program(Role::Class(0), Some(7)),
                program(Role::Class(0), Some(8)),
            ),
            // Of a runtime whose cgroups are not known.
            (program(role(1), None), program(role(2), None)),
            (program(role(1), Some(7)), program(role(1), None)),
        ] {
            let mut connects = Connects::default();
            flood(&mut connects, &floods);
            assert_eq!(
                connects.count(NOW, other.payer().unwrap()),
                None,
                "{other:?}"
            );
        }
    }

    #[test]
    fn programs_of_one_container_pay_together() {
        let one = program(Role::Client(TenantId(1)), Some(7));
        let of_another_user = Caller { user: 1001, ..one };
        let in_class = program(Role::Class(0), Some(7));
        let mut connects = Connects::default();
        flood(&mut connects, &one);
        for other in [one, of_another_user, in_class] {
            assert!(connects.count(NOW, other.payer().unwrap()).is_some());
        }
    }

    #[test]
    fn another_users_connections_take_no_place_of_the_tenants_user() {
        use users_crowd::Caller::{OfUser, Other, Root};
        let caller = |role, is_own, owner| Caller {
            is_own,
            owner,
            ..program(role, None)
        };
        let at_tenant = Role::Client(TenantId(1));
        for (caller, counts) in [
            (caller(at_tenant, true, Some(7)), OfUser(7)),
            (caller(at_tenant, false, Some(7)), OfUser(1000)),
            (caller(at_tenant, false, None), Other),
            (caller(at_tenant, true, None), Other),
            (caller(Role::Class(0), false, None), Other),
            (caller(Role::Command, false, None), Other),
            (caller(Role::Command, true, None), Root),
        ] {
            assert_eq!(caller.over_all(), counts, "{caller:?}");
        }
    }

    #[test]
    fn a_users_bytes_are_counted_together_and_apart_from_anothers() {
        let own = |tenant, owner| Caller {
            is_own: true,
            owner,
            ..program(Role::Client(TenantId(tenant)), None)
        };
        let command = |user| Caller {
            user,
            ..program(Role::Command, None)
        };
        let one = own(1, Some(1000)).holder();
        assert_eq!(one, own(2, Some(1000)).holder());
        assert_eq!(one, command(1000).holder());
        let others = [own(3, None), own(4, Some(1001)), own(5, None), command(0)];
        let mut all: Vec<Payer> = others.iter().map(Caller::holder).collect();
        all.push(one);
        all.push(program(Role::Client(TenantId(1)), Some(7)).holder());
        let distinct: std::collections::BTreeSet<Payer> = all.iter().copied().collect();
        assert_eq!(distinct.len(), all.len(), "{all:?}");
        // Users that one may have without end.
        assert_eq!(command(100_000).holder(), command(165_000).holder());
    }

    /// As many connections as are taken at once.
    fn fill(crowd: &mut Crowd<Place>, caller: &Caller) -> usize {
        let (place, user) = (caller.place(), caller.user());
        let free = |crowd: &Crowd<Place>| crowd.admits(place, user) == Admittance::Free;
        let before = crowd.of(place, caller.user).count();
        while free(crowd) {
            let id = crowd.of(place, caller.user).last().unwrap_or(0) + 1;
            crowd.came(place, user, id);
        }
        crowd.of(place, caller.user).count() - before
    }

    #[test]
    fn each_container_of_a_class_has_room_for_a_tenants_processes() {
        let mut crowd = Crowd::default();
        for container in 1..=40 {
            let caller = program(Role::Class(0), Some(container));
            assert_eq!(fill(&mut crowd, &caller), 512);
            assert_eq!(fill(&mut crowd, &caller), 0);
        }
    }

    #[test]
    fn callers_of_a_class_that_are_in_no_container_share_their_places() {
        let mut crowd = Crowd::default();
        let caller = program(Role::Class(0), None);
        assert_eq!(fill(&mut crowd, &caller), 512);
        assert_eq!(fill(&mut crowd, &Caller { user: 1, ..caller }), 512);
        assert_eq!(fill(&mut crowd, &Caller { user: 2, ..caller }), 0);
    }
}

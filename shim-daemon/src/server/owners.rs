//! Of whom a connection is: whose lane closes what it brings.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use gpushare_core::lanes::{Owner, Part};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::session::Role;
use crate::cgroup::of_machine;
use crate::peer::cgroup_of;

/// The owner of a connection. Containers of a class come through one socket, and many run as root:
/// they are told apart by their cgroups, in which they cannot get out of their own.
pub(super) fn owner(socket: &UnixStream, role: Role) -> Owner {
    let peer = getsockopt(&socket.as_fd(), PeerCredentials);
    let part = match role {
        Role::Command => Part::Commands,
        Role::Client(tenant) => Part::Door(tenant),
        Role::Class(_) => {
            let pid = peer.as_ref().map_or(0, |peer| peer.pid().unsigned_abs());
            Part::Container(cgroup_of(pid).ok().as_deref().map_or(0, number_of))
        }
    };
    Owner {
        user: peer.map_or(u32::MAX, |peer| peer.uid()),
        part,
    }
}

/// A number that stands for the container of a cgroup, or for all that are in none.
fn number_of(cgroup: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    of_machine(cgroup).hash(&mut hasher);
    hasher.finish()
}

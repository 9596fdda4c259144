//! Which users of the machine may do what. A daemon of the whole machine serves all users; each
//! commands its own tenants.
//!
//! Root and the daemon's own user may do everything. Any other user may register tenants, join and
//! change its own, and list all tenants, as `nvidia-smi` shows every user's processes. A privilege
//! at the cost of other users, such as a priority above the default, is refused.

use std::collections::{BTreeMap, BTreeSet};

use gpushare_core::TenantId;
use gpushare_protocol::limits::Policy;
use gpushare_protocol::wire::{ErrorCode, WireError};

use super::{ConnId, Node};

/// Tenants a user may have at a time: each takes the daemon about a megabyte and three
/// descriptors.
const MOST_TENANTS: usize = 256;
/// The same of all users but root together: a program may have users without end.
const ALL_TENANTS: usize = 1024;
/// The part of these that users from [`CHOSEN`] on may have.
const CHOSEN_TENANTS: usize = 512;
/// The first user number of which a program may have many: `/etc/subuid` has ranges from 100,000
/// on.
pub(crate) const CHOSEN: u32 = 1 << 16;
/// Answers of one connection that may wait for the admission of one tenant.
const MOST_PENDING: usize = 16;
/// Connections over which a user may follow events at a time. Each is told every event, of whatever
/// tenant, in the daemon's time and not in that user's.
const MOST_FOLLOWERS: usize = 16;
/// The same of all users but root together: a program may have users without end.
const ALL_FOLLOWERS: usize = 64;

const PRIORITY: &str = "GPUSHARE_PRIORITY";

/// The users behind commands, without the unrestricted users; and the user of a private
/// daemon.
#[derive(Debug, Default)]
pub(super) struct Users(BTreeMap<ConnId, u32>, Option<u32>);

impl Users {
    /// A command of this user came; `None` may do everything.
    pub(super) fn came(&mut self, connection: ConnId, user: Option<u32>) {
        match user {
            Some(user) => self.0.insert(connection, user),
            None => self.0.remove(&connection),
        };
    }

    /// It has gone.
    pub(super) fn left(&mut self, connection: ConnId) {
        self.0.remove(&connection);
    }

    /// The owner as it is told to commands: of a private daemon its user, where the registration
    /// names none.
    pub(super) fn told(&self, owner: Option<u32>) -> Option<u32> {
        owner.or(self.1)
    }

    /// How many of these connections are of this command's user, and how many of any user. `None`:
    /// the command may do everything.
    pub(super) fn among(
        &self,
        from: ConnId,
        all: impl Iterator<Item = ConnId>,
    ) -> Option<(usize, usize)> {
        let user = self.of(from)?;
        let (mut theirs, mut of_users) = (0, 0);
        for other in all.filter_map(|other| self.of(other)) {
            theirs += usize::from(other == user);
            of_users += 1;
        }
        Some((theirs, of_users))
    }

    /// The owner of a tenant that this command registers: `None` for the machine.
    pub(super) fn of(&self, connection: ConnId) -> Option<u32> {
        self.0.get(&connection).copied()
    }
}

impl Node {
    /// This daemon is private: all of its tenants are this user's.
    pub fn serves_only(&mut self, user: u32) {
        self.users.1 = Some(user);
    }

    /// Refuses a command on a tenant of another user.
    pub(super) fn may_command(&self, from: ConnId, tenant: TenantId) -> Result<(), WireError> {
        let Some(known) = self.tenants.get(&tenant) else {
            return Ok(());
        };
        self.may_command_that(from, known.name(), known.registration().owner)
    }

    /// The same of the tenant of this name, which is `owner`'s.
    pub(super) fn may_command_that(
        &self,
        from: ConnId,
        name: &str,
        owner: Option<u32>,
    ) -> Result<(), WireError> {
        match self.users.of(from) {
            Some(user) if owner != Some(user) => {
                let may = match owner {
                    Some(owner) => format!("user {owner}'s: only that user or root may do that"),
                    None => "root's: only root may do that".to_owned(),
                };
                let text = format!("tenant {name} is not yours but {may}");
                Err(forbidden(&text))
            }
            _ => Ok(()),
        }
    }

    /// Refuses variables that only root may set, once they are parsed.
    pub(super) fn may_ask(
        &self,
        from: ConnId,
        asked: &[(String, String)],
    ) -> Result<(), WireError> {
        let (wanted, most) = (priority_in(asked), Policy::default().priority);
        if wanted > most && self.users.of(from).is_some() {
            let text = format!(
                "GPUSHARE_PRIORITY={wanted}: above {most} is for root to give on this machine; accepted: 0 to {most}"
            );
            return Err(WireError::new(ErrorCode::Forbidden, text));
        }
        Ok(())
    }

    /// Refuses a user more tenants than a user plausibly needs. Tenants of root and of the daemon's
    /// own user are not counted.
    pub(super) fn may_have_another(&self, from: ConnId) -> Result<(), WireError> {
        let Some(user) = self.users.of(from) else {
            return Ok(());
        };
        let owners = self.tenants.values();
        let owners = owners.filter_map(|known| known.registration().owner);
        match too_many(user, owners) {
            None => Ok(()),
            Some(text) => Err(WireError::retry(ErrorCode::Full, text)),
        }
    }

    /// Refuses a connection that asks for the same tenant again and again while it waits.
    pub(super) fn may_wait(&self, from: ConnId, tenant: TenantId) -> Result<(), WireError> {
        let pending = self
            .tenants
            .get(&tenant)
            .into_iter()
            .flat_map(|known| known.pending());
        let pending = pending.filter(|(waiting, _)| *waiting == from).count();
        if pending + self.residency.commands.waits(from, tenant) < MOST_PENDING {
            return Ok(());
        }
        let text = "this connection has asked for it often enough; wait for the answers";
        Err(WireError::retry(ErrorCode::Full, text))
    }

    /// Refuses a user more followers of events than a user plausibly needs, and all users together
    /// more than the loop has time for.
    pub(super) fn may_follow(&self, from: ConnId) -> Result<(), WireError> {
        let Some((theirs, all)) = self.users.among(from, self.followers()) else {
            return Ok(());
        };
        let text = if theirs >= MOST_FOLLOWERS {
            format!(
                "you follow events over {MOST_FOLLOWERS} connections (`events --follow`, `top`), the most a user may at a time; end one"
            )
        } else if all >= ALL_FOLLOWERS {
            format!(
                "users follow events over {ALL_FOLLOWERS} connections (`events --follow`, `top`), the most that all but root may at a time together"
            )
        } else {
            return Ok(());
        };
        Err(WireError::retry(ErrorCode::Full, text))
    }

    /// The commands whose connections are needed: each is the only one that keeps some tenant,
    /// waits for an answer, or follows events.
    pub(crate) fn needed_commands(&self) -> BTreeSet<ConnId> {
        let mut needed: BTreeSet<ConnId> = self.followers().collect();
        needed.extend(self.changes.iter().map(|(from, ..)| *from));
        needed.extend(self.inspecting.commands());
        needed.extend(self.residency.commands.all());
        for known in self.tenants.values() {
            needed.extend(known.only_keeper());
            needed.extend(known.pending().iter().map(|(to, _)| *to));
        }
        needed
    }

    pub(crate) fn owner(&self, tenant: TenantId) -> Option<u32> {
        self.tenants.get(&tenant)?.registration().owner
    }
}

/// Why a user may not have one more tenant beside those of these owners, if it may not.
fn too_many(user: u32, owners: impl Iterator<Item = u32>) -> Option<String> {
    let (mut theirs, mut chosen, mut all) = (0, 0, 0);
    for owner in owners {
        theirs += usize::from(owner == user);
        chosen += usize::from(owner >= CHOSEN);
        all += 1;
    }
    if theirs >= MOST_TENANTS {
        let text =
            format!("you have {MOST_TENANTS} tenants, the most a user may have at a time; end one");
        return Some(text);
    }
    let most = match user >= CHOSEN {
        true if chosen >= CHOSEN_TENANTS => CHOSEN_TENANTS,
        _ if all >= ALL_TENANTS => ALL_TENANTS,
        _ => return None,
    };
    Some(format!(
        "users have {most} tenants, the most that all but root{} may have at a time together",
        if most == CHOSEN_TENANTS {
            " with numbers from 65536 on"
        } else {
            ""
        }
    ))
}

/// Refuses a container a priority above the default that none of its `maxima` bounds. The
/// container's author asks for it, by annotations and variables, though root's hook sends it ([ADR
/// 198](../../../docs/adr/0198-a-containers-high-priority-takes-a-maximum.md)).
pub(super) fn may_outrank(
    asked: &[(String, String)],
    maxima: &[(String, String)],
) -> Result<(), WireError> {
    let (wanted, most) = (priority_in(asked), Policy::default().priority);
    if wanted <= most || maxima.iter().any(|(name, _)| name == PRIORITY) {
        return Ok(());
    }
    let text = format!(
        "{PRIORITY}=\"{wanted}\" is refused: this node allows a container at most {most}, because no {PRIORITY} in its [maxima] or in a rule of [[containers.rules]] says otherwise; accepted: at most {most}"
    );
    Err(WireError::new(ErrorCode::BadLimits, text))
}

/// The highest priority that variables ask for; 0 where they ask for none.
fn priority_in(asked: &[(String, String)]) -> u16 {
    let priorities = asked.iter().filter(|(name, _)| name == PRIORITY);
    let wanted = priorities.filter_map(|(_, value)| value.parse().ok()).max();
    wanted.unwrap_or(0)
}

/// The same refusal of a command that registers a tenant: another name may be free.
pub(super) fn or_another_name(mut error: WireError) -> WireError {
    error
        .message
        .push_str("; or take another name: --name NAME");
    error
}

pub(super) fn forbidden(text: &str) -> WireError {
    WireError::new(ErrorCode::Forbidden, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many tenants of each of these users.
    fn each(users: std::ops::Range<u32>, many: usize) -> impl Iterator<Item = u32> {
        users.flat_map(move |user| std::iter::repeat_n(user, many))
    }

    #[test]
    fn a_user_has_256_tenants_and_leaves_others_theirs() {
        let own = || each(1000..1001, 255);
        assert_eq!(too_many(1000, own()), None);
        let own = || own().chain([1000]);
        assert!(too_many(1000, own()).is_some_and(|why| why.contains("you have 256")));
        assert_eq!(too_many(1001, own()), None);
    }

    #[test]
    fn users_without_end_leave_tenants_for_the_machines_own() {
        let chosen = || each(100_000..100_064, 8);
        let why = too_many(165_000, chosen()).unwrap();
        assert!(
            why.contains("512") && why.contains("from 65536 on"),
            "{why}"
        );
        assert_eq!(too_many(165_000, chosen().skip(1)), None);
        assert_eq!(too_many(1000, chosen()), None);
        let all = || chosen().chain(each(1000..1064, 8));
        for user in [1000, 2000, 165_000] {
            assert!(too_many(user, all()).is_some(), "{user}");
        }
        assert_eq!(too_many(2000, all().skip(1)), None);
        let why = too_many(2000, all()).unwrap();
        assert!(why.contains("1024"), "{why}");
    }
}

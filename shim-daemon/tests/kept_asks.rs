//! A user's command is bounded before it is kept: what it asks, and what of it waits.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::container_node::*;
use gpushare_protocol::wire::{Control, ControlReply, ErrorCode, Injection};
use gpushared::foreign::Foreign;
use gpushared::groups::Groups;
use gpushared::node::{ConnId, Effect, Settings};

/// As many changes, or looks, of one user as wait.
const OF_A_USER: usize = 16;

/// The reply to a command, or what waits until there is one.
#[derive(Debug)]
enum Answer {
    Waits,
    Refused(ErrorCode),
    TryAgain,
}

impl Machine {
    /// A new connection of a command of this user.
    fn comes(&mut self, user: Option<u32>) -> ConnId {
        let from = self.connection();
        self.node.command_came(from, "/user.slice", user);
        from
    }

    /// This user's command makes a tenant of this name, and stays.
    fn makes(&mut self, user: Option<u32>, name: &str) {
        let from = self.comes(user);
        let create = Control::Create {
            name: Some(name.to_owned()),
            environment: vec![],
            devices: vec![],
        };
        self.node.command(NOW, from, 1, &create);
        self.drain();
    }

    fn sets(&mut self, user: Option<u32>, tenant: &str, changes: usize) -> Answer {
        let from = self.comes(user);
        let set = Control::Set {
            tenant: tenant.to_owned(),
            changes: vec![("GPUSHARE_IDLE_AFTER".to_owned(), "5s".to_owned()); changes],
        };
        self.node.command(NOW, from, 1, &set);
        answer(self.drain().0)
    }

    /// A hook of this user names the first process of a container.
    fn names_first(&mut self, user: Option<u32>, injection: Injection) -> Answer {
        let from = self.comes(user);
        let pidfd = pidfd(std::process::id());
        let pidfd = Foreign::new(pidfd, &self.node.lanes().own());
        let named = (Some(pidfd), Groups::parse(RUNTIME));
        self.node.name_container(NOW, (from, 1), injection, named);
        let (mut looks, mut told) = (0, None);
        while let Some(effect) = self.node.poll_effect() {
            match effect {
                Effect::Inspect(_) => looks += 1,
                Effect::Command { reply, .. } => told = Some(reply),
                _ => {}
            }
        }
        assert_eq!(looks, u32::from(told.is_none()), "{told:?}");
        answer(told)
    }
}

fn answer(told: Option<ControlReply>) -> Answer {
    match told {
        None => Answer::Waits,
        Some(ControlReply::Error(error)) if error.can_retry => Answer::TryAgain,
        Some(ControlReply::Error(error)) => Answer::Refused(error.code),
        Some(other) => panic!("{other:?}"),
    }
}

/// A daemon that still counts the programs of the one before, with a tenant of Alice's.
fn recovers() -> Machine {
    let mut machine = Machine::with(&Settings::default(), true);
    machine.makes(None, "roots");
    machine.makes(Some(ALICE), "hers");
    machine
}

#[test]
fn a_change_that_is_refused_anyway_does_not_wait_for_the_recovery() {
    let mut machine = recovers();
    let too_many = machine.sets(Some(ALICE), "hers", 513);
    assert!(matches!(too_many, Answer::Refused(ErrorCode::BadLimits)));
    let others = machine.sets(Some(ALICE), "roots", 1);
    assert!(matches!(others, Answer::Refused(ErrorCode::Forbidden)));
    let nobodys = machine.sets(None, &"x".repeat(100_000), 1);
    assert!(matches!(nobodys, Answer::Refused(ErrorCode::NotFound)));
    for (user, tenant) in [(Some(ALICE), "hers"), (None, "hers"), (None, "roots")] {
        let waits = machine.sets(user, tenant, 512);
        assert!(matches!(waits, Answer::Waits), "{tenant}: {waits:?}");
    }
}

#[test]
fn changes_of_one_user_leave_room_for_others_while_a_daemon_recovers() {
    let mut machine = recovers();
    machine.makes(Some(ALICE + 1), "others");
    for _ in 0..OF_A_USER {
        assert!(matches!(
            machine.sets(Some(ALICE), "hers", 1),
            Answer::Waits
        ));
    }
    let more = machine.sets(Some(ALICE), "hers", 1);
    assert!(matches!(more, Answer::TryAgain), "{more:?}");
    let others = machine.sets(Some(ALICE + 1), "others", 1);
    assert!(matches!(others, Answer::Waits), "{others:?}");
}

#[test]
fn changes_of_many_users_leave_room_for_roots_while_a_daemon_recovers() {
    let mut machine = recovers();
    let users = ALICE..ALICE + 20;
    for user in users {
        machine.makes(Some(user), &format!("of-{user}"));
        for _ in 0..OF_A_USER {
            let _ = machine.sets(Some(user), &format!("of-{user}"), 1);
        }
    }
    let waits = machine.sets(None, "roots", 1);
    assert!(matches!(waits, Answer::Waits), "{waits:?}");
}

#[test]
fn what_a_hook_says_is_bounded_before_its_process_is_looked_at() {
    let mut machine = Machine::new();
    let usual = asks("a", "1GiB");
    let pair = (String::new(), String::new());
    for longer in [
        Injection {
            id: "x".repeat(1_000),
            ..usual.clone()
        },
        Injection {
            environment: vec![pair.clone(); 513],
            ..usual.clone()
        },
        Injection {
            labels: vec![pair; 513],
            ..usual.clone()
        },
        Injection {
            devices: vec![String::new(); 513],
            ..usual.clone()
        },
        Injection {
            devices: vec!["x".repeat(100_000)],
            ..usual.clone()
        },
        Injection {
            preload: vec![String::new(); 20_000],
            ..usual.clone()
        },
        Injection {
            preload: vec!["x".repeat(20_000)],
            ..usual.clone()
        },
    ] {
        let told = machine.names_first(Some(ALICE), longer);
        let is_refused = matches!(told, Answer::Refused(ErrorCode::BadLimits));
        assert!(is_refused, "{told:?}");
    }
    let told = machine.names_first(Some(ALICE), usual);
    assert!(matches!(told, Answer::Waits), "{told:?}");
}

#[test]
fn looks_for_hooks_of_users_leave_room_for_others_and_for_roots() {
    let mut machine = Machine::new();
    let mut names = |user| machine.names_first(user, asks("a", "1GiB"));
    for _ in 0..OF_A_USER {
        assert!(matches!(names(Some(ALICE)), Answer::Waits));
    }
    assert!(matches!(names(Some(ALICE)), Answer::TryAgain));
    assert!(matches!(names(Some(ALICE + 1)), Answer::Waits));
    let all = (0..1_000).map(|at| names(Some(ALICE + 2 + at / 16)));
    let waits = all.filter(|told| matches!(told, Answer::Waits)).count();
    assert!(waits < 64, "{waits}");
    for _ in 0..OF_A_USER * 2 {
        assert!(matches!(names(None), Answer::Waits));
    }
}

//! Which processes are left alone because a rule allows their container to run without limits.

use super::*;
use crate::containers::{Containers, Rule, Unlimited};
use crate::foreign::Foreign;
use crate::groups::Mounts;
use crate::init::Init;
use crate::node::{Container, Silent};
use crate::spill::{Inspected, What};

/// The namespace that a rule allows.
const SYSTEM: (&str, &str) = ("namespace", "system");

fn rule(labels: &[(&str, &str)], unlimited: Unlimited) -> Rule {
    Rule {
        labels: pairs(labels),
        maxima: Vec::new(),
        unlimited: Some(unlimited),
    }
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    let pair = |(kind, value): &(&str, &str)| ((*kind).to_owned(), (*value).to_owned());
    all.iter().map(pair).collect()
}

/// A node on which each container may run without limits, and a rule allows those of [`SYSTEM`].
fn scene() -> Scene {
    let mut scene = Scene::new();
    scene.node.containers = Containers {
        rules: vec![rule(&[SYSTEM], Unlimited::Allow)],
        ..Containers::default()
    };
    scene.node.recovered(NOW + Nanos::secs(2));
    scene
}

impl Scene {
    /// The hook of this user, or of root, asks about a container that has a GPU and asks for
    /// nothing, and names its first process. It may run. The containers that were stored before the
    /// hook was told so.
    fn asks(
        &mut self,
        user: Option<u32>,
        labels: &[(&str, &str)],
        init: u32,
    ) -> Option<Vec<Container>> {
        let pidfd = self.of(init);
        self.asks_with(user, labels, Some(pidfd));
        let (mut told, mut stored) = (Vec::new(), None);
        while let Some(effect) = self.node.poll_effect() {
            match effect {
                Effect::KeepAllowed(all) if told.is_empty() => stored = Some(all),
                Effect::Inspect(look) => {
                    let inspected = Inspected {
                        ticket: look.ticket,
                        what: What::Init(Box::new(Ok(self.init(init)))),
                        facts: None,
                    };
                    self.node.inspected(NOW, inspected);
                }
                Effect::Command { reply, .. } => told.push(reply),
                _ => {}
            }
        }
        let runs = ControlReply::Unlimited {
            takes_maxima: false,
        };
        assert_eq!(told, [runs]);
        stored
    }

    fn asks_with(&mut self, user: Option<u32>, labels: &[(&str, &str)], pidfd: Option<Foreign>) {
        let hook = ConnId(9);
        let runtime = "/system.slice/containerd.service";
        self.node.command_came(hook, runtime, user);
        let silent = Silent {
            id: "one".to_owned(),
            devices: vec!["GPU-1".to_owned()],
            labels: pairs(labels),
        };
        let asker = Groups::parse(&format!("0::{runtime}"));
        self.node
            .judge_container(NOW, (hook, 1), silent, (pidfd, asker));
    }

    /// The pidfd of a process, as a hook sends it.
    fn of(&self, pid: u32) -> Foreign {
        let pidfd = peer::open(pid.cast_signed()).unwrap();
        Foreign::new(pidfd, &self.node.lanes().own())
    }

    fn init(&self, pid: u32) -> Init {
        let pidfd = peer::open(pid.cast_signed()).unwrap();
        Init::recorded(pidfd, pid, self.proc.path()).unwrap()
    }

    /// Says in `/proc` that the process is in another cgroup now.
    fn moves(&self, pid: u32, cgroup: &str) {
        let own = self.proc.path().join(pid.to_string());
        fs::write(own.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
    }

    fn ends(&mut self, pid: u32) {
        let child = self.children.iter_mut().find(|child| child.id() == pid);
        let child = child.unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// The containers that are to be stored, as the last effect about them says.
    fn stored(&mut self) -> Option<Vec<Container>> {
        let mut stored = None;
        while let Some(effect) = self.node.poll_effect() {
            if let Effect::KeepAllowed(all) = effect {
                stored = Some(all);
            }
        }
        stored
    }

    /// A daemon that has these of the one before.
    fn next(&mut self, stored: Vec<Container>) {
        let mut next = scene();
        std::mem::swap(&mut self.node, &mut next.node);
        self.node.watch.proc = self.proc.path().to_owned();
        self.node.restore_allowed(stored);
    }
}

#[test]
fn processes_of_a_container_that_a_rule_allows_are_left_alone() {
    let mut scene = scene();
    let init = scene.process(CONTAINER);
    scene.asks(None, &[SYSTEM], init);
    let below = scene.process(&format!("{CONTAINER}/work"));
    let like = scene.process(&format!("{CONTAINER}b"));
    assert_eq!(
        scene.fates(&[init, below, like]),
        ["spared", "spared", "ended"]
    );
    assert_eq!(scene.node.unmanaged_on(0), 1, "the others are not counted");
}

#[test]
fn a_container_that_no_rule_allows_is_ended() {
    for labels in [&[("namespace", "other")][..], &[]] {
        let mut scene = scene();
        let init = scene.process(CONTAINER);
        scene.asks(None, labels, init);
        assert_eq!(scene.fates(&[init]), ["ended"], "{labels:?}");
        assert_eq!(scene.node.unmanaged_on(0), 1);
    }
}

#[test]
fn an_allowed_containers_process_is_told_of_once_with_its_container() {
    let mut scene = scene();
    let init = scene.process(CONTAINER);
    scene.asks(None, &[SYSTEM], init);
    let mut told = Vec::new();
    for look in 0..3 {
        let listed = [(init, Bytes(GIB << look))].into();
        let now = NOW + Nanos::secs(10 + look);
        let none = BTreeSet::new();
        scene.node.mind_strangers((now, now), 0, &listed, &none);
        while let Some(effect) = scene.node.poll_effect() {
            if let Effect::Event { record, .. } = effect {
                told.push((record.kind.clone(), record.text.clone()));
            }
        }
    }
    let [(kind, text)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(kind, "unmanaged-spared");
    assert!(text.contains("container one"), "{text}");
    assert!(text.contains("rule"), "{text}");
}

#[test]
fn a_process_that_left_an_allowed_containers_cgroup_is_ended() {
    let mut scene = scene();
    let [init, other] = [(); 2].map(|()| scene.process(CONTAINER));
    scene.asks(None, &[SYSTEM], init);
    assert_eq!(scene.fates(&[init, other]), ["spared", "spared"]);
    scene.moves(other, "/user.slice/user-1000.slice/session-1.scope");
    assert_eq!(scene.fates(&[init, other]), ["", "ended"]);
}

#[test]
fn the_cgroup_of_an_allowed_container_that_has_ended_spares_nothing() {
    let mut scene = scene();
    let init = scene.process(CONTAINER);
    scene.asks(None, &[SYSTEM], init);
    scene.ends(init);
    let later = scene.process(CONTAINER);
    assert_eq!(scene.fates(&[later]), ["ended"]);
    assert_eq!(scene.stored(), None);
    scene.node.tend_allowed();
    assert_eq!(scene.stored(), Some(Vec::new()), "it is forgotten");
    scene.node.tend_allowed();
    assert_eq!(scene.stored(), None);
}

#[test]
fn another_cgroup_of_the_same_path_spares_nothing() {
    let mut scene = scene();
    // A mounted hierarchy, in which the container's cgroup is a folder.
    let mount = tempfile::tempdir().unwrap();
    let point = mount.path().display();
    let table = format!("30 25 0:26 / {point} rw - cgroup2 cgroup2 rw\n");
    scene.node.known_mounts = Mounts::parse(&table).into();
    let own = mount.path().join(CONTAINER.trim_start_matches('/'));
    fs::create_dir_all(&own).unwrap();
    let init = scene.process(CONTAINER);
    scene.asks(None, &[SYSTEM], init);
    let first = scene.process(CONTAINER);
    assert_eq!(scene.fates(&[first]), ["spared"]);
    // Its first process lives on elsewhere. The old folder keeps its inode from being given again.
    fs::rename(&own, mount.path().join("old")).unwrap();
    fs::create_dir(&own).unwrap();
    let later = scene.process(CONTAINER);
    assert_eq!(scene.fates(&[later]), ["ended"]);
}

#[test]
fn the_next_daemon_leaves_an_allowed_container_alone_too() {
    let mut scene = scene();
    let [init, of_other] = [CONTAINER, "/docker/b"].map(|group| scene.process(group));
    let stored = scene.asks(None, &[SYSTEM], init).unwrap();
    scene.next(stored.clone());
    assert_eq!(scene.fates(&[init, of_other]), ["spared", "ended"]);
    // One that has ended meanwhile is none for the daemon after that.
    scene.ends(init);
    let later = scene.process(CONTAINER);
    scene.next(stored);
    assert_eq!(scene.stored(), Some(Vec::new()));
    assert_eq!(scene.fates(&[later]), ["ended"]);
}

#[test]
fn a_users_hook_is_not_believed_that_a_rule_means_its_container() {
    let mut scene = scene();
    let init = scene.process(CONTAINER);
    scene.asks(Some(1000), &[SYSTEM], init);
    assert_eq!(scene.fates(&[init]), ["ended"]);
}

#[test]
fn a_user_that_a_container_chooses_spares_nothing() {
    let user = ("user", "1000");
    for (labels, fate) in [
        (&[user][..], "ended"),
        (&[user, SYSTEM], "spared"),
        (&[("image", "a")], "spared"),
    ] {
        let mut scene = scene();
        scene.node.containers.rules = vec![rule(labels, Unlimited::Allow)];
        let init = scene.process(CONTAINER);
        scene.asks(None, labels, init);
        assert_eq!(scene.fates(&[init]), [fate], "{labels:?}");
    }
}

#[test]
fn a_hook_that_names_no_process_is_answered_as_before() {
    let mut scene = scene();
    let init = scene.process(CONTAINER);
    scene.asks_with(None, &[SYSTEM], None);
    let answer = scene.node.poll_effect();
    let runs = ControlReply::Unlimited {
        takes_maxima: false,
    };
    let is_told =
        |effect: &Effect| matches!(effect, Effect::Command { reply, .. } if *reply == runs);
    assert!(answer.is_some_and(|effect| is_told(&effect)));
    assert_eq!(scene.fates(&[init]), ["ended"]);
}

#[test]
fn a_tenants_process_in_an_allowed_container_is_told_of_as_the_tenants() {
    let mut scene = scene();
    let init = scene.process(CONTAINER);
    scene.asks(None, &[SYSTEM], init);
    let inner = format!("{CONTAINER}/inner");
    let own = scene.process(&inner);
    scene.container_named("inner", &inner, own);
    assert_eq!(scene.told(&[own]), [(Some("inner".to_owned()), true)]);
    assert_eq!(scene.node.unmanaged_on(0), 1);
}

#[test]
fn an_allowed_container_without_a_cgroup_of_its_own_spares_nothing() {
    for cgroup in ["/", "/system.slice", "/system.slice/containerd.service"] {
        let mut scene = scene();
        let init = scene.process(cgroup);
        scene.asks(None, &[SYSTEM], init);
        let beside = scene.process("/system.slice/containerd.service");
        assert_eq!(scene.fates(&[init, beside]), ["ended"; 2], "{cgroup}");
    }
}

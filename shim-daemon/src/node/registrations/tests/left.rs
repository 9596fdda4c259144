//! Host memory of a process that registers anew.

use std::io::Write as _;
use std::sync::Arc;

use super::*;
use crate::node::host_store::PIECE;

/// The least that a process is given.
const LEAST: u64 = 2 << 20;

impl Scene {
    /// A process asks for a range: the file in which it is, if it is given one.
    fn asks_for(&mut self, client: Client, bytes: u64) -> Option<Arc<HostFile>> {
        let device_index = 0;
        let range = Request::HostRange {
            device_index,
            bytes,
        };
        self.node.request(NOW, client, 7, &range);
        let mut file = None;
        while let Some(effect) = self.node.poll_effect() {
            if let Effect::Copy(job) = effect {
                file = Some(Arc::clone(&job.host));
                self.node.copied(NOW, job.carry_out());
            }
        }
        file
    }

    /// How much of the budget counts as given.
    fn given(&self) -> Bytes {
        self.node.world.host().held.memory
    }

    /// The process registers with a page that the daemon refuses.
    fn is_refused(&mut self) {
        let lane = self.node.lanes().own();
        let page = HostFile::create(&lane).unwrap().file().try_clone().unwrap();
        assert_eq!(self.tries(Some(page.into())).process, None);
    }

    /// The processes of which the end is heard no more.
    fn unwatched(&mut self) -> Vec<ProcessId> {
        let effects = std::iter::from_fn(|| self.node.poll_effect());
        let unwatched = effects.filter_map(|one| match one {
            Effect::Unwatch { process } => Some(process),
            _ => None,
        });
        unwatched.collect()
    }

    /// What has to be done on lanes is done.
    fn settle(&self, file: &HostFile) {
        let (done, is_done) = std::sync::mpsc::channel();
        file.lane().run(move || done.send(()).unwrap());
        is_done.recv().unwrap();
    }
}

fn allocated(file: &HostFile) -> Bytes {
    Bytes(file.allocated().unwrap())
}

#[test]
fn a_process_that_registers_over_and_over_gets_host_memory_once() {
    let mut scene = Scene::new();
    let mut all = Bytes::ZERO;
    for _ in 0..4 {
        let client = scene.registers();
        scene.is_looked_at(client.process.unwrap());
        let file = scene.asks_for(client, PIECE.0);
        all += file.map_or(Bytes::ZERO, |file| allocated(&file));
        assert_eq!(scene.given(), PIECE, "what it has counts");
    }
    assert_eq!(all, PIECE);
}

#[test]
fn memory_of_a_program_that_registers_anew_stays_until_its_process_ends() {
    let mut scene = Scene::new();
    let former = scene.registers();
    scene.is_looked_at(former.process.unwrap());
    let file = scene.asks_for(former, LEAST).unwrap();
    let new = scene.registers();
    scene.is_looked_at(new.process.unwrap());
    scene.settle(&file);
    assert_eq!(
        (allocated(&file), scene.given()),
        (Bytes(LEAST), Bytes(LEAST))
    );
    assert_eq!(scene.unwatched(), [], "its end is to be heard");
    scene.node.process_ended(NOW, former.process.unwrap());
    scene.settle(&file);
    assert_eq!(
        (allocated(&file), scene.given()),
        (Bytes::ZERO, Bytes::ZERO)
    );
    assert!(scene.kept().is_subset(&[new.process.unwrap()].into()));
}

#[test]
fn memory_of_a_page_that_is_refused_counts_however_often() {
    let mut scene = Scene::new();
    let mut files = vec![];
    for _ in 0..20 {
        let client = scene.registers();
        scene.is_looked_at(client.process.unwrap());
        files.extend(scene.asks_for(client, 16 << 20));
        scene.is_refused();
        assert!(scene.kept().len() <= 8, "{:?}", scene.kept());
    }
    let all: Bytes = files.iter().map(|file| allocated(file)).sum();
    assert_eq!((all, scene.given()), (PIECE, PIECE));
}

#[test]
fn memory_of_a_process_in_a_tenant_that_ends_is_free() {
    let (mut scene, _) = Scene::alone();
    let former = scene.registers();
    scene.is_looked_at(former.process.unwrap());
    let file = scene.asks_for(former, LEAST).unwrap();
    scene.tenant = create(&mut scene.node, ConnId(2), "two");
    scene.registers();
    assert!(!scene.has("one"));
    scene.settle(&file);
    assert_eq!(
        (allocated(&file), scene.given()),
        (Bytes::ZERO, Bytes::ZERO)
    );
    assert!(scene.unwatched().contains(&former.process.unwrap()));
}

#[test]
fn memory_of_a_former_program_is_free_once_the_next_is_seen() {
    let mut scene = Scene::new();
    let mut child = Command::new("sh")
        .args(["-c", "read line; exec cat"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let peer = || Peer {
        pid: pid.cast_signed(),
        pidfd: inspect(pid).unwrap().pidfd,
        ..process()
    };
    let program = || Seen::of(pid.cast_signed()).and_then(|seen| seen.program());
    let begun = |name: &str| {
        let of = || std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
        while of() != name || program().is_none() {
            std::thread::yield_now();
        }
    };
    begun("sh\n");
    let former = scene.tries_as(peer(), None);
    let is_seen = |scene: &mut Scene, client: Client| {
        let seen = Seen::of(pid.cast_signed());
        scene.node.identified(NOW, client.process.unwrap(), seen);
    };
    is_seen(&mut scene, former);
    let file = scene.asks_for(former, LEAST).unwrap();
    child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    begun("cat\n");
    let new = scene.tries_as(peer(), None);
    assert_eq!(
        scene.given(),
        Bytes(LEAST),
        "it is not known yet which program it is"
    );
    is_seen(&mut scene, new);
    scene.settle(&file);
    assert_eq!(
        (allocated(&file), scene.given()),
        (Bytes::ZERO, Bytes::ZERO)
    );
    assert!(scene.unwatched().contains(&former.process.unwrap()));
    child.kill().unwrap();
    child.wait().unwrap();
}

//! A tenant that is let return while its memory is stored.

use std::process::{Child, Command, Stdio};

use gpushare_protocol::page::residency::Order;

use super::*;

impl Scene {
    /// As [`Scene::new`]. `beside`: another tenant is on the device, and the host has no room for
    /// it.
    fn new_beside(beside: Option<&Child>) -> Self {
        let mut scene = Self::begun("swap");
        if let Some(child) = beside {
            scene.another_is(child.id(), Place::In, (0, 0));
        }
        scene.registers(ConnId(1));
        scene.shows_its_memory();
        scene.node.recovered(NOW + Nanos::secs(2));
        scene.is_suspended_to_a_file();
        scene.is_looked_at(NOW);
        scene
    }

    /// The process of this pid, of a tenant of its own, says that its memory is on the device, or
    /// that so much is away. It has so much of the host's memory.
    pub(super) fn another_is(&mut self, pid: u32, place: Place, (away, host): (u64, u64)) {
        let tenant = self.node.restore(NOW, &registration("two", "swap"));
        let usage = UsagePage::create().unwrap();
        usage.view().found(1, 0);
        let first = (
            std::mem::replace(&mut self.tenant, tenant.unwrap()),
            std::mem::replace(&mut self.usage, usage),
            self.client,
        );
        if place == Place::In {
            self.is_charged();
        }
        let new = client(ConnId(3), self.tenant, None);
        self.registers_as(new, pid, 0);
        self.says(&Request::Residency(Residency {
            device_index: 0,
            epoch: 0,
            place,
            movable: SIZE,
            away,
            host,
            residue: Residue::default(),
        }));
        self.says(&Request::Adopted { instance: 1 });
        (self.tenant, self.usage, self.client) = first;
    }

    /// A call of the process touches the device: it is to return.
    fn wants_in(&mut self) {
        self.says(&Request::WantIn { device_index: 0 });
        let order = self.page.unwrap().devices[0].order().word.order();
        assert_eq!(order, Order::Return);
    }
}

/// The word is read once all memory is back: what is stored meanwhile must not change it.
#[test]
fn a_tenant_that_is_stored_gives_its_memory_back_when_it_returns() {
    let child = Command::new("cat").stdin(Stdio::piped()).spawn();
    let mut child = child.unwrap();
    let mut scene = Scene::new_beside(Some(&child));
    let asked = scene.word();
    scene.asks();
    scene.wants_in();
    let word = scene.word();
    assert!(word != 0 && word != asked, "{word} after {asked}");
    scene.copy_ends();
    assert_eq!(scene.word(), word);
    scene.asks();
    assert_eq!(*scene.told(), Reply::Refused(Refusal::Cancelled));
    assert_eq!((scene.word(), scene.jobs.len()), (word, 0));
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn a_tenant_that_is_stored_keeps_its_memory_where_no_other_needs_it() {
    let mut scene = Scene::new_beside(None);
    assert_ne!(scene.word(), 0);
    scene.asks();
    scene.wants_in();
    assert_eq!(scene.word(), 0);
    scene.copy_ends();
    assert_eq!(scene.word(), 0);
}

//! The limit of managed memory (`uvm`) is compared with the host memory that can hold it: of a
//! container when it is created, and of each tenant when the limit is raised.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::Path;

use crate::container_node::*;
use gpushare_core::TenantId;
use gpushare_protocol::units::MIB;
use gpushare_protocol::wire::*;
use gpushared::groups::Mounts;
use gpushared::node::{Client, ConnId};

/// The cgroup of a container or a process, in which a test limits the memory.
const GROUP: &str = "0::/pods/one\n";
const UVM: (&str, &str) = ("GPUSHARE_OVERSUBSCRIBE", "uvm");
const SWAP: (&str, &str) = ("GPUSHARE_OVERSUBSCRIBE", "swap");

struct Lab {
    machine: Machine,
    mounted: tempfile::TempDir,
    first: First,
    firsts: Vec<First>,
}

impl Lab {
    fn new() -> Self {
        let mounted = tempfile::tempdir().unwrap();
        let mut machine = Machine::configured("[swap]\nhost = \"1GiB\"\n");
        machine.node.mounted(mounts(mounted.path()));
        let lab = Self {
            machine,
            mounted,
            first: First::start(GROUP),
            firsts: Vec::new(),
        };
        lab.has(100);
        lab
    }

    /// The cgroup's limit.
    fn has(&self, mib: u64) {
        let group = self.mounted.path().join("pods/one");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("memory.max"), format!("{}\n", mib * MIB)).unwrap();
    }

    /// A container there, with a limit of 64 MiB.
    fn container(&mut self, how: (&str, &str)) -> Result<TenantId, WireError> {
        let wanted = limited("a", "64MiB", how);
        self.machine.inject(&wanted, &self.first)
    }

    /// A container with this limit, in a cgroup of its own without one. What refuses it.
    fn unbound(&mut self, id: &str, limit: &str, how: (&str, &str)) -> Option<String> {
        let first = First::start(&format!("0::/other/{id}\n"));
        let made = self.machine.inject(&limited(id, limit, how), &first);
        self.firsts.push(first);
        made.err().map(|error| error.message)
    }

    fn ask(&mut self, from: ConnId, control: &Control) -> ControlReply {
        self.machine.node.command(NOW, from, 1, control);
        self.machine.drain().0.unwrap()
    }

    /// The limit in MiB that tenant `a` has after a change, or the refusal's text.
    fn set(&mut self, name: &str, value: &str) -> Result<u64, String> {
        let from = self.machine.connection();
        self.machine.node.command_came(from, "/", None);
        let set = Control::Set {
            tenant: "a".to_owned(),
            changes: vec![(name.to_owned(), value.to_owned())],
        };
        let answer = self.ask(from, &set);
        let limit = self.machine.tenants()[0].limit / MIB;
        match answer {
            ControlReply::Done => Ok(limit),
            ControlReply::Error(error) if error.code == ErrorCode::BadLimits => {
                Err(format!("{limit} MiB: {}", error.message))
            }
            other => panic!("{other:?}"),
        }
    }

    fn limit(&mut self, value: &str) -> Result<u64, String> {
        self.set("GPUSHARE_MEM_LIMIT", value)
    }
}

fn limited(id: &str, limit: &str, how: (&str, &str)) -> Injection {
    let mut wanted = asks(id, limit);
    let how = (how.0.to_owned(), how.1.to_owned());
    wanted.environment.push(how);
    wanted
}

/// A part in a hundred of the machine's memory.
fn of_machine(percent: u64) -> String {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let row = text.lines().find_map(|row| row.strip_prefix("MemTotal:"));
    let kib = row.unwrap().trim().strip_suffix("kB").unwrap().trim();
    let kib: u64 = kib.parse().unwrap();
    format!("{}KiB", kib * percent / 100)
}

fn mounts(root: &Path) -> Mounts {
    let table = format!("30 20 0:1 / {} rw - cgroup2 cgroup2 rw\n", root.display());
    Mounts::parse(&table)
}

#[track_caller]
fn refused(answer: Result<u64, String>, words: &[&str]) {
    let told = answer.unwrap_err();
    for word in words {
        assert!(told.contains(word), "{word} in {told}");
    }
}

#[test]
fn managed_memory_is_not_raised_above_a_containers_memory_cgroup() {
    let mut lab = Lab::new();
    lab.container(UVM).unwrap();
    assert_eq!(lab.limit("90MiB"), Ok(90));
    let words = [
        "90 MiB: ",
        "GPUSHARE_OVERSUBSCRIBE=\"uvm\" is refused",
        "200MiB are needed",
        "memory cgroup has 100MiB",
    ];
    refused(lab.limit("200MiB"), &words);
    lab.has(300);
    assert_eq!(lab.limit("200MiB"), Ok(200));
}

#[test]
fn changes_that_raise_no_managed_memory_are_made_whatever_the_cgroup_has() {
    let mut lab = Lab::new();
    lab.container(UVM).unwrap();
    assert_eq!(lab.limit("90MiB"), Ok(90));
    lab.has(50);
    assert_eq!(lab.set("GPUSHARE_PRIORITY", "300"), Ok(90));
    assert_eq!(lab.limit("80MiB"), Ok(80));
    refused(lab.limit("81MiB"), &["memory cgroup has 50MiB"]);
}

#[test]
fn swapped_memory_is_raised_above_a_containers_memory_cgroup() {
    let mut lab = Lab::new();
    lab.container(SWAP).unwrap();
    assert_eq!(lab.limit("200MiB"), Ok(200));
}

/// A tenant of `run`, with a process in such a cgroup.
fn of_run(lab: &mut Lab, table: &str) {
    let from = lab.machine.connection();
    lab.machine.node.command_came(from, "/", None);
    let text = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let create = Control::Create {
        name: Some("a".to_owned()),
        environment: vec![text(UVM), text(("GPUSHARE_MEM_LIMIT", "64MiB"))],
        devices: vec![],
    };
    let answer = lab.ask(from, &create);
    assert!(matches!(answer, ControlReply::Created { .. }), "{answer:?}");
    let client = Client {
        connection: lab.machine.connection(),
        tenant: lab.machine.made[0].0,
        process: None,
        gated: false,
        moves: true,
    };
    let register = Register {
        pid: 1,
        presents_page: false,
        slot: None,
    };
    let peer = peer(ROOT, table);
    let node = &mut lab.machine.node;
    node.register(NOW, client, (1, &register), peer, None)
        .unwrap();
    lab.machine.drain();
}

#[test]
fn managed_memory_is_not_raised_above_its_processes_memory_cgroup() {
    let mut lab = Lab::new();
    of_run(&mut lab, GROUP);
    // Each of two devices has it.
    assert_eq!(lab.limit("50MiB"), Ok(50));
    let words = ["102MiB are needed", "memory cgroup has 100MiB"];
    refused(lab.limit("51MiB"), &words);
}

#[test]
fn without_a_memory_cgroup_managed_memory_ends_at_the_machines() {
    let mut lab = Lab::new();
    of_run(&mut lab, "0::/pods/other\n");
    assert_eq!(lab.limit("200MiB"), Ok(200));
    refused(lab.limit("64TiB"), &["the machine has "]);
}

#[test]
fn a_container_gets_no_more_managed_memory_than_the_machine_has() {
    let mut lab = Lab::new();
    let refusal = lab.unbound("a", &of_machine(120), UVM);
    assert!(refusal.is_some_and(|text| text.contains("the machine has ")));
    assert_eq!(lab.unbound("b", &of_machine(80), UVM), None);
    assert_eq!(lab.unbound("c", &of_machine(120), SWAP), None);
}

#[test]
fn managed_memory_of_all_tenants_above_the_machines_is_told_in_the_log() {
    let mut lab = Lab::new();
    assert_eq!(lab.unbound("a", &of_machine(60), UVM), None);
    assert_eq!(lab.unbound("b", &of_machine(60), SWAP), None);
    assert_eq!(lab.machine.node.managed_beyond_machine(), None);
    assert_eq!(lab.unbound("c", &of_machine(60), UVM), None);
    let told = lab.machine.node.managed_beyond_machine().unwrap();
    for words in ["the tenants with uvm", "the machine has "] {
        assert!(told.contains(words), "{words} in {told}");
    }
}

#[test]
fn a_nodes_default_gives_no_more_managed_memory_than_the_machine_has() {
    let create = |limit: &str| {
        let host = "[swap]\nhost = \"1GiB\"\n";
        let defaults = format!(
            "{host}[defaults]\nGPUSHARE_OVERSUBSCRIBE = \"uvm\"\nGPUSHARE_MEM_LIMIT = \"{limit}\"\n"
        );
        let mut machine = Machine::configured(&defaults);
        let from = machine.connection();
        machine.node.command_came(from, "/", None);
        let create = Control::Create {
            name: Some("a".to_owned()),
            environment: vec![],
            devices: vec![crate::driver::FIRST],
        };
        machine.node.command(NOW, from, 1, &create);
        machine.drain().0.unwrap()
    };
    let refused = create(&of_machine(120));
    let ControlReply::Error(error) = refused else {
        panic!("{refused:?}")
    };
    for words in [
        "GPUSHARE_OVERSUBSCRIBE=\"uvm\" is refused",
        "the machine has ",
    ] {
        assert!(error.message.contains(words), "{words} in {error}");
    }
    let made = create(&of_machine(80));
    assert!(matches!(made, ControlReply::Created { .. }), "{made:?}");
}

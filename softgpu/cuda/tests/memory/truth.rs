//! The machine's counters for a process that takes every kind of memory, frees it, loses its
//! context and dies.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use softgpu::Kind;
use softgpu::inspect::{DeviceTruth, Observer};
use softgpu::spec::Spec;

use super::support;

const MIB: u64 = 1 << 20;

/// A client that waits for a line after each step, and its machine.
pub(super) struct Watched {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    observer: Observer,
}

impl Watched {
    fn start(case: &str, name: &str) -> Self {
        Self::of("truth", case, name)
    }

    /// A case of this client on the machine of this name.
    pub(super) fn of(client: &str, case: &str, name: &str) -> Self {
        let spec = format!("mem=512MiB,name={name}-{}", std::process::id());
        let observer = Observer::open(
            &spec
                .parse::<Spec>()
                .expect("the client and the machine are ours"),
        )
        .expect("the client and the machine are ours");
        let mut child = Command::new(support::client(client))
            .arg(case)
            .env("LD_LIBRARY_PATH", support::library())
            .env("SOFTGPU", &spec)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the client and the machine are ours");
        let input = child
            .stdin
            .take()
            .expect("the client and the machine are ours");
        let output = BufReader::new(
            child
                .stdout
                .take()
                .expect("the client and the machine are ours"),
        );
        Self {
            child,
            input,
            output,
            observer,
        }
    }

    /// Waits until the client has done this step; returns the device's state.
    pub(super) fn at(&mut self, step: &str) -> DeviceTruth {
        let mut line = String::new();
        self.output
            .read_line(&mut line)
            .expect("the client and the machine are ours");
        assert_eq!(line.trim_end(), step);
        self.look()
    }

    fn look(&self) -> DeviceTruth {
        self.observer
            .snapshot()
            .expect("the client and the machine are ours")
            .devices
            .remove(0)
    }

    pub(super) fn go_on(&mut self) {
        writeln!(self.input).expect("the client and the machine are ours");
    }

    /// Lets all delayed memory return.
    pub(super) fn settle(&self) -> DeviceTruth {
        for _ in 0..64 {
            self.observer
                .step()
                .expect("the client and the machine are ours");
        }
        self.look()
    }
}

fn asked(device: &DeviceTruth, kind: Kind) -> u64 {
    device.processes[0].requested[kind as usize]
}

fn held(device: &DeviceTruth, kind: Kind) -> u64 {
    device.processes[0].physical[kind as usize]
}

#[test]
fn every_kind_of_memory_is_counted_once_and_released_once() {
    let mut client = Watched::start("every_kind", "kinds");
    let device = client.at("context");
    assert_eq!(device.requested_now, 0);
    let context = device.processes[0].overhead();
    assert!(context > 0);
    client.go_on();

    let device = client.at("linear");
    let linear = 512 + 3 * MIB + 512 + 1024 * 5000;
    assert_eq!(asked(&device, Kind::Linear), linear);
    assert_eq!(held(&device, Kind::Linear), 2 * MIB + 4 * MIB + 6 * MIB);
    client.go_on();

    let device = client.at("array");
    assert!(asked(&device, Kind::Array) >= 4_000_000 && asked(&device, Kind::Array) < 5_000_000);
    let array = asked(&device, Kind::Array);
    client.go_on();

    let device = client.at("vmm");
    assert_eq!(
        (asked(&device, Kind::Vmm), held(&device, Kind::Vmm)),
        (4 * MIB, 4 * MIB)
    );
    client.go_on();

    let device = client.at("managed, nowhere");
    assert_eq!(
        (asked(&device, Kind::Managed), held(&device, Kind::Managed)),
        (5 * MIB, 0)
    );
    client.go_on();

    let device = client.at("managed, resident");
    assert_eq!(
        (asked(&device, Kind::Managed), held(&device, Kind::Managed)),
        (5 * MIB, 6 * MIB)
    );
    client.go_on();

    let device = client.at("pool");
    assert_eq!(
        (asked(&device, Kind::Pool), held(&device, Kind::Pool)),
        (64 * MIB, 64 * MIB)
    );
    let most = linear + array + 4 * MIB + 5 * MIB + 64 * MIB;
    assert_eq!((device.requested_now, device.requested_peak), (most, most));
    client.go_on();

    let device = client.at("freed");
    assert_eq!((device.requested_now, device.requested_peak), (0, most));
    let kept = client.settle().used_physical - context;
    assert_eq!(kept, 2 * MIB, "one empty block is kept");
    client.go_on();

    client.at("reset");
    let device = client.settle();
    assert_eq!(device.requested_now, 0);
    client.go_on();

    let device = client.at("left behind");
    assert_eq!(device.requested_now, 4 * MIB);
    client.go_on();
    assert!(client.child.wait().unwrap().success());
    let device = client.settle();
    assert_eq!((device.requested_now, device.used_physical), (0, 0));
}

#[test]
fn each_context_takes_memory_and_gives_back_its_own() {
    let mut client = Watched::start("contexts", "contexts");
    let context = 64 * MIB;
    for (step, contexts) in [("one", 1), ("two", 2), ("the second", 1), ("none", 0)] {
        client.at(step);
        let device = client.settle();
        assert_eq!(device.used_physical, contexts * context, "{step}");
        client.go_on();
    }
    assert!(client.child.wait().unwrap().success());
}

#[test]
fn a_killed_process_leaves_nothing_behind() {
    let mut client = Watched::start("maker", "killed");
    let device = client.at("made");
    assert_eq!(device.requested_now, 12 * MIB);
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    let device = client.settle();
    assert_eq!((device.requested_now, device.used_physical), (0, 0));
    assert_eq!(device.requested_peak, 12 * MIB);
}

#[test]
fn sharing_memory_does_not_count_it_twice() {
    let mut client = Watched::start("exporter", "exporter");
    let made = client.at("made");
    assert_eq!(made.requested_now, 12 * MIB + 512);
    client.go_on();
    let shareable = client.at("shareable");
    assert_eq!(shareable.requested_now, made.requested_now);
    assert_eq!(shareable.used_physical, made.used_physical);
    assert_eq!(
        shareable.processes[0].physical_total(),
        made.processes[0].physical_total()
    );
    client.go_on();
    // The descriptor is still open: it holds its 6 MiB.
    client.at("freed");
    let freed = client.settle();
    assert_eq!(freed.requested_now, 0);
    assert_eq!(made.used_physical - freed.used_physical, 6 * MIB);
    client.go_on();
    assert!(client.child.wait().unwrap().success());
    assert_eq!(client.settle().used_physical, 0);
}

//! Graphs of copies and memsets keep addresses of memory that leaves the device and comes back.
//! They use what those have when they run. A graph over freed memory fails as it does alone.

use gpushare_protocol::wire::Place;
use gpushare_tests::clients::compile;
use gpushare_tests::guest::plain;
use gpushare_tests::{Daemon, Gpu, Guest, MIB, Tenant, until};

const NODE: &str = "first_context = \"4MiB\"\n[swap]\nhost = \"1GiB\"\n";
/// A device with room for one and a half tenants.
const DEVICE: &str = "mem=106MiB,ctx=2MiB";
const SWAP: [(&str, &str); 2] = [
    ("GPUSHARE_MEM_LIMIT", "96MiB"),
    ("GPUSHARE_ON_COLLISION", "swap"),
];

/// A tenant with graphs, and one with 64 MiB: its memory and all of the other's do not fit.
struct Scene {
    daemon: Daemon,
    graphs: Guest,
    other: Guest,
    _tenants: [Tenant; 2],
    _gpu: Gpu,
}

impl Scene {
    /// The graphs are made, and then the other takes its memory.
    fn new(bytes: u64) -> Self {
        let gpu = Gpu::new(DEVICE);
        let daemon = Daemon::configured(&gpu, NODE);
        let tenants = ["graphs", "other"].map(|name| daemon.tenant(name, &SWAP));
        let mut graphs = tenants[0].client("nodes", &[]);
        prepares(&mut graphs, bytes);
        let mut other = tenants[1].client("swapped", &[]);
        for line in ["init", &format!("alloc {}", 64 * MIB), "fill 4"] {
            other.does(line);
        }
        Self {
            daemon,
            graphs,
            other,
            _tenants: tenants,
            _gpu: gpu,
        }
    }

    /// The memory of the graphs is on the host, and has left so many times.
    fn is_away(&self, times: u64) {
        let row = self.daemon.residency("graphs");
        assert_eq!((row.place, row.left), (Place::Out, times));
    }

    /// It leaves for the memory of the other, which works.
    fn makes_room(&mut self) {
        self.other.does("check 4");
        until("the graphs' memory is away", || {
            self.daemon.residency("graphs").place == Place::Out
        });
    }

    /// It leaves by command.
    fn is_suspended(&mut self) {
        self.daemon.suspend("graphs");
    }

    /// The graphs run each time when their memory has left.
    fn replays(&mut self, leave: fn(&mut Self)) {
        leave(self);
        self.is_away(1);
        self.has(&["launch 0", "check 1 7", "check 2 5", "pinned 7"]);
        leave(self);
        self.is_away(2);
        self.has(&["launch 1", "boxed 3 7", "boxed 4 7"]);
        leave(self);
        self.is_away(3);
        self.has(&["fill 0 9", "fill 2 0", "launch 0", "launch 1"]);
        self.has(&["check 1 9", "check 2 5", "pinned 9"]);
        self.has(&["boxed 3 9", "boxed 4 9"]);
        self.other.does("check 4");
    }

    /// Each succeeds, or finds nothing that is wrong.
    fn has(&mut self, lines: &[&str]) {
        lines.iter().for_each(|line| self.graphs.does(line));
    }
}

/// Memory of five slots of that size, of sevens and zeroes, and the graphs.
fn prepares(guest: &mut Guest, bytes: u64) {
    guest.does("init");
    for slot in 0..5 {
        guest.does(&format!("alloc {slot} {bytes}"));
        guest.does(&format!("fill {slot} {}", if slot == 0 { 7 } else { 0 }));
    }
    guest.does("lines");
    guest.does("boxes");
}

#[test]
fn graphs_of_copies_and_memsets_use_the_memory_that_came_back() {
    Scene::new(12 * MIB).replays(Scene::makes_room);
}

#[test]
fn graphs_over_parts_of_a_slab_use_the_memory_that_came_back() {
    Scene::new(MIB / 4).replays(Scene::is_suspended);
}

/// Its source is freed while it is away.
#[test]
fn a_graph_over_freed_memory_fails_as_it_does_alone() {
    let lines = ["check 1 0", "free 0", "launch 0", "check 1 7", "launch 1"];
    let gpu = Gpu::new(DEVICE);
    let mut alone = Guest::start(plain(&gpu, &compile("nodes", &[])));
    prepares(&mut alone, 12 * MIB);
    let wanted = lines.map(|line| alone.ask(line));
    assert_eq!(wanted[2], "launch 700");
    let mut scene = Scene::new(12 * MIB);
    scene.is_away(1);
    assert_eq!(lines.map(|line| scene.graphs.ask(line)), wanted);
    // A process whose context failed keeps its memory until it ends, and its neighbour goes on.
    scene.graphs.finish().silently();
    for line in ["check 4", "fill 6", "check 6"] {
        scene.other.does(line);
    }
}

//! Containers whose memory may leave the card (`on-collision=swap`), brought in by the OCI hook:
//! more of them than fit take turns, one can be suspended by its name, and the host memory is the
//! daemon's, outside their memory cgroups.

use std::fs;
use std::path::Path;

use gpushare_tests::container::{Bundle, Door, Lab, Runtime};
use gpushare_tests::machine::ROOT;
use gpushare_tests::runnable::not_runnable_here;
use gpushare_tests::{Guest, MIB, clients, until};

/// A device with room for one and a half containers, and the contexts of five.
const DEVICE: &str = "mem=106MiB,ctx=2MiB";
/// The bytes that each container allocates.
const SIZE: u64 = 64 * MIB;
/// The annotations of a container whose memory may move.
const SWAP: [(&str, &str); 2] = [("mem-limit", "96MiB"), ("on-collision", "swap")];

fn name() -> String {
    let test = std::thread::current();
    test.name().unwrap_or("containers_swap").to_owned()
}

/// A node with so much host memory for swapping, on which a context is small.
fn lab(host: &str, more: &str) -> Option<Lab> {
    let config = format!("first_context = \"4MiB\"\n[swap]\nhost = \"{host}\"\n{more}");
    Lab::start_with(&name(), DEVICE, &config)
}

fn bundle(id: &str, asks: &[(&str, &str)]) -> Bundle {
    let program = clients::compile("swapped", &[]);
    Bundle {
        program: vec![program.to_string_lossy().into_owned()],
        ..Bundle::new(id, Runtime::ByHand, asks)
    }
}

fn ask(guest: &mut Guest, line: &str, answer: u64) {
    let word = line.split(' ').next().unwrap_or(line);
    assert_eq!(guest.ask(line), format!("{word} {answer}"), "{line}");
}

/// A container with its memory filled with a value.
fn filled(lab: &Lab, bundle: &Bundle, value: u64) -> Guest {
    let mut guest = lab.run(bundle).started();
    ask(&mut guest, &format!("alloc {SIZE}"), 0);
    ask(&mut guest, &format!("fill {value}"), 0);
    guest
}

/// Where the container's memory is.
fn place(lab: &Lab, id: &str) -> String {
    let row = lab.row(id).expect("it is a tenant");
    let place = row["residency"]["place"].as_str();
    place.expect("its memory may move").to_owned()
}

fn succeeds(lab: &Lab, arguments: &[&str]) -> String {
    let done = lab.machine().run(ROOT, arguments);
    assert!(done.status.success(), "{arguments:?}: {done:?}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Where its work has not ended in time on a busy machine the command says so, and the daemon asks
/// the tenant again.
fn suspends(lab: &Lab, id: &str) {
    let done = lab.machine().run(ROOT, &["suspend", id]);
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    let is_late = told.contains("has not left yet");
    assert!(done.status.success() || is_late, "{done:?}");
    until("it leaves at last", || place(lab, id) == "out");
}

/// How many files the daemon has open whose names contain this.
fn open_files(lab: &Lab, part: &str) -> usize {
    let folder = format!("/proc/{}/fd", lab.machine().daemon_pid());
    let all = fs::read_dir(folder).expect("a daemon").flatten();
    let targets = all.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets
        .filter(|target| target.to_string_lossy().contains(part))
        .count()
}

/// Kills the container's process, and before it the runtime that would tidy up.
fn killed(lab: &Lab, id: &str, guest: Guest) {
    let row = lab.row(id).expect("it is a tenant");
    let pid = row["processes"][0]["pid"].as_u64().expect("a pid");
    guest.kill();
    lab.sh(&format!("kill -KILL {pid} 2>/dev/null || true"));
}

#[test]
fn containers_that_exceed_the_card_take_turns_and_lose_no_byte() {
    let Some(lab) = lab("1GiB", "") else { return };
    let [mut one, mut two] = [("first-of-two", 1), ("second-of-two", 2)]
        .map(|(id, value)| filled(&lab, &bundle(id, &SWAP), value));
    assert_eq!(place(&lab, "first-of-two"), "out");
    assert_eq!(place(&lab, "second-of-two"), "in");
    for round in 10..13 {
        for (guest, own) in [(&mut one, 100), (&mut two, 200)] {
            ask(guest, &format!("fill {}", own + round), 0);
        }
        for (guest, own) in [(&mut one, 100), (&mut two, 200)] {
            ask(guest, &format!("check {}", own + round), 0);
        }
    }
    // Daemons of other tests are asked too: the names are of these two alone.
    for tenant in ["first-of-two", "second-of-two"] {
        let said = succeeds(&lab, &["events", "--tenant", tenant]);
        let moved = said.contains(" left ") && said.contains(" returned ");
        assert!(moved && !said.contains(" refused "), "{said}");
    }
    for guest in [one, two] {
        guest.finish().silently();
    }
    until("nothing is left", || open_files(&lab, "gpushare-host") == 0);
}

/// Bytes of shared memory that count for a container.
fn shared(lab: &Lab, id: &str) -> u64 {
    let (group, _) = lab.memory_group(id).expect("as before");
    let stat = lab.sh(&format!("grep '^shmem ' {}/memory.stat", group.display()));
    stat[6..].parse().expect("a number")
}

#[test]
fn memory_on_the_host_does_not_count_for_the_container() {
    let Some(lab) = lab("1GiB", "") else { return };
    if lab.memory_group("one").is_none() {
        return not_runnable_here(&name(), "no memory cgroup can be made");
    }
    let bundle = Bundle {
        memory: Some(512 * MIB),
        ..bundle("one", &SWAP)
    };
    let mut guest = filled(&lab, &bundle, 1);
    // The software GPU's own memory is shared memory of its users.
    let before = shared(&lab, "one");
    suspends(&lab, "one");
    let after = shared(&lab, "one");
    assert!(after <= before + 4 * MIB, "{before} bytes, then {after}");
    ask(&mut guest, "check 1", 0);
    guest.finish().silently();
}

#[test]
fn a_suspended_container_outlives_its_daemon_and_comes_back_by_name() {
    let Some(mut lab) = lab("1GiB", "") else {
        return;
    };
    let mut guest = filled(&lab, &bundle("one", &SWAP), 7);
    suspends(&lab, "one");
    assert_eq!(place(&lab, "one"), "out");
    lab.restart_daemon();
    until("the next daemon knows where its memory is", || {
        lab.row("one")
            .is_some_and(|row| row["residency"]["place"] == "out")
    });
    succeeds(&lab, &["resume", "one"]);
    assert_eq!(place(&lab, "one"), "in");
    ask(&mut guest, "check 7", 0);
    // Suspended again, a call of its program brings it back.
    suspends(&lab, "one");
    ask(&mut guest, "check 7", 0);
    until("it is back for its daemon too", || {
        place(&lab, "one") == "in"
    });
    guest.finish().silently();
}

#[test]
fn of_a_killed_container_no_host_memory_and_no_stored_file_is_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().display();
    let spill = format!("spill = \"{path}\"\nspill_limit = \"256MiB\"\n");
    let Some(lab) = lab("72MiB", &spill) else {
        return;
    };
    let asks = [SWAP[0], SWAP[1], ("idle-after", "500ms")];
    let one = filled(&lab, &bundle("one", &asks), 3);
    suspends(&lab, "one");
    let mut two = filled(&lab, &bundle("two", &asks), 4);
    let stored = || open_files(&lab, &path.to_string());
    until("the memory of the first is stored", || {
        stored() > 0 && succeeds(&lab, &["events"]).contains(" spilled ")
    });
    // The second's is the daemon's own. No hook of the runtime runs.
    let before = open_files(&lab, "gpushare-host");
    killed(&lab, "one", one);
    until("its tenant ends", || lab.row("one").is_none());
    until("its file is closed", || stored() == 0);
    until("its host memory is given back", || {
        open_files(&lab, "gpushare-host") < before
    });
    assert_eq!(entries(folder.path()), 0, "a stored file has no name");
    ask(&mut two, "check 4", 0);
    killed(&lab, "two", two);
    until("nothing is left", || {
        open_files(&lab, "gpushare-host") == 0 && lab.sh("ls /run/gpushare/sockets").is_empty()
    });
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).expect("a folder").count()
}

#[test]
fn managed_memory_above_a_containers_memory_cgroup_fails_the_create() {
    let Some(lab) = lab("1GiB", "") else { return };
    if lab.memory_group("one").is_none() {
        return not_runnable_here(&name(), "no memory cgroup can be made");
    }
    let asks = [("oversubscribe", "uvm"), ("mem-limit", "192MiB")];
    let with = |memory| Bundle {
        memory,
        ..bundle("one", &asks)
    };
    let ended = lab.ends(&with(Some(128 * MIB)));
    assert!(
        !ended.status.success() && ended.stdout.is_empty(),
        "{ended:?}"
    );
    let lines = ended
        .stderr
        .lines()
        .filter(|line| line.starts_with("gpushare: "));
    let told: Vec<&str> = lines.collect();
    assert_eq!(told.len(), 1, "{ended:?}");
    for words in [
        "GPUSHARE_OVERSUBSCRIBE=\"uvm\" is refused",
        "192MiB are needed",
        "memory cgroup has 128MiB",
    ] {
        assert!(told[0].contains(words), "{words} in {}", told[0]);
    }
    assert!(lab.row("one").is_none());
    for memory in [Some(256 * MIB), None] {
        let mut guest = lab.run(&with(memory)).started();
        ask(&mut guest, &format!("alloc {}", 16 * MIB), 0);
        ask(&mut guest, "fill 5", 0);
        ask(&mut guest, "check 5", 0);
        guest.finish().silently();
        until("it ends", || lab.row("one").is_none());
    }
}

#[test]
fn managed_memory_above_the_memory_cgroup_is_refused_in_a_class_too() {
    let class = "[containers]\ncdi = \"/run/cdi/gpushare.json\"\nlibrary = \"/var/lib/lab/library\"\n\
        [classes.managed]\n[classes.managed.limits]\nGPUSHARE_OVERSUBSCRIBE = \"uvm\"\n\
        GPUSHARE_MEM_LIMIT = \"192MiB\"\n";
    let Some(lab) = lab("1GiB", class) else {
        return;
    };
    if lab.memory_group("one").is_none() {
        return not_runnable_here(&name(), "no memory cgroup can be made");
    }
    let of_class = |id: &str, memory: u64| Bundle {
        door: Door::Cdi("managed"),
        annotations: vec![],
        memory: Some(memory * MIB),
        ..bundle(&id.repeat(32), &[])
    };
    let mut small = lab.run(&of_class("ab", 128));
    assert_ne!(small.ask("init"), "init 0");
    let told = small.finish().stderr;
    assert!(told.contains("memory cgroup has 128MiB"), "{told}");
    let mut large = lab.run(&of_class("cd", 256)).started();
    ask(&mut large, &format!("alloc {}", 16 * MIB), 0);
    large.finish().silently();
}

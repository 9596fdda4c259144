//! NVML inside a tenant shows the tenant: its limit, its usage and its own processes, also to tools
//! that never start CUDA.

use gpushare_tests::guest::{command, plain};
use gpushare_tests::{GIB, Gpu, Guest, MIB, clients, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The monitor's output when run next to `name`'s programs, with the pid it is to look for.
fn monitor(gpu: &Gpu, flags: &[&str], pid: &str) -> String {
    built(&[], gpu, flags, pid)
}

/// That of a monitor which was compiled with these flags.
fn built(cc: &[&str], gpu: &Gpu, flags: &[&str], pid: &str) -> String {
    let mut run = command(gpu, flags);
    run.arg(clients::compile("monitor", cc)).arg(pid);
    Guest::start(run).finish().silently()
}

/// Starts the quota client in a tenant and allocates.
fn busy(gpu: &Gpu, flags: &[&str], bytes: u64) -> Guest {
    let mut guest = Guest::client(gpu, flags, "quota").started();
    assert_eq!(guest.ask(&format!("alloc {bytes}")), "alloc 0");
    guest
}

/// The program under `gpushare run`, its only child.
fn program_of(guest: &Guest) -> String {
    let id = guest.id();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"))
        .expect("/proc is mounted");
    children
        .split_whitespace()
        .last()
        .expect("run has a child")
        .to_owned()
}

#[track_caller]
fn number(text: &str, line: &str, word: &str) -> u64 {
    let line = text
        .lines()
        .find(|found| found.starts_with(line))
        .expect(line);
    let rest = line.split(&format!("{word} ")).nth(1).expect(word);
    rest.split(',')
        .next()
        .and_then(|digits| digits.parse().ok())
        .expect("a number")
}

#[test]
fn a_tool_in_the_tenant_sees_its_limit_its_use_and_its_processes_only() {
    let gpu = Gpu::new("mem=16GiB");
    let (mine, theirs) = (
        format!("{}-mine", gpu.name()),
        format!("{}-theirs", gpu.name()),
    );
    let (mine, theirs) = (
        ["--mem-limit", "2GiB", "--name", &mine],
        ["--mem-limit", "4GiB", "--name", &theirs],
    );
    let own = busy(&gpu, &mine, 512 * MIB);
    let neighbour = busy(&gpu, &theirs, 3 * GIB);

    let seen = monitor(&gpu, &mine, &program_of(&own));
    for line in ["memory:", "memory_v2:"] {
        assert_eq!(number(&seen, line, "total"), 2 * GIB, "{seen}");
        let used = number(&seen, line, "used");
        assert!((544 * MIB..640 * MIB).contains(&used), "{seen}");
        assert!(number(&seen, line, "free") + used <= 2 * GIB, "{seen}");
    }
    assert!(
        seen.ends_with("listed: 15\n"),
        "all four lists have it: {seen}"
    );
    for list in [
        "processes",
        "nvmlDeviceGetComputeRunningProcesses_v2",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "details",
    ] {
        assert!(seen.contains(&format!("{list}: 0, 1\n")), "{seen}");
    }
    assert!(
        seen.contains("how many: 7, 1\nexactly as many: 0, 1\n"),
        "{seen}"
    );

    let seen = monitor(&gpu, &mine, &program_of(&neighbour));
    assert!(seen.ends_with("listed: 0\n"), "{seen}");
    for guest in [own, neighbour] {
        guest.finish().silently();
    }
}

/// The free memory that NVML shows a quota client with a limit of 1 GiB.
#[track_caller]
fn free(guest: &mut Guest) -> u64 {
    let answer = guest.ask("nvml");
    let words: Vec<&str> = answer.split(' ').collect();
    assert_eq!(words[2..], [&GIB.to_string(), "0"], "{answer}");
    words[1].parse().expect("bytes")
}

#[test]
fn freed_memory_is_used_until_nvml_counts_it_no_more() {
    // The software GPU has it back one to eight operations later, as the seed says. A look is
    // several.
    let mut late = 0;
    for seed in 1..=6 {
        let gpu = Gpu::new(&format!("seed={seed}"));
        let mut guest = busy(&gpu, &["--mem-limit", "1GiB"], 128 * MIB);
        let before = free(&mut guest);
        assert_eq!(guest.ask(&format!("alloc {}", 256 * MIB)), "alloc 0");
        let holding = before - 256 * MIB;
        assert_eq!(free(&mut guest), holding);
        assert_eq!(guest.ask("free 1"), "free 0");
        let looks = (0..8).map(|_| free(&mut guest));
        let looks: Vec<u64> = looks.take_while(|free| *free == holding).collect();
        assert!(looks.len() < 8, "seed {seed}");
        assert_eq!(free(&mut guest), before, "seed {seed}");
        late += looks.len();
        guest.finish().silently();
    }
    assert!(late > 0, "no seed shows memory that is late");
}

#[test]
fn a_tool_sees_its_process_in_the_wide_list_of_535() {
    let gpu = Gpu::new("driver=12020");
    let (mine, theirs) = (["--mem-limit", "2GiB"], ["--mem-limit", "4GiB"]);
    let neighbour = busy(&gpu, &theirs, GIB);
    let name = format!("{}-mine", gpu.name());
    let mine = [&mine[..], &["--name", &name]].concat();
    let own = [busy(&gpu, &mine, 512 * MIB), busy(&gpu, &mine, 512 * MIB)];
    for guest in &own {
        let seen = built(&["-DWIDE"], &gpu, &mine, &program_of(guest));
        assert!(seen.ends_with("listed: 15\n"), "{seen}");
        assert!(
            seen.contains("how many: 7, 2\nexactly as many: 0, 2\n"),
            "{seen}"
        );
        assert!(number(&seen, "memory:", "used") >= 1024 * MIB, "{seen}");
    }
    let seen = built(&["-DWIDE"], &gpu, &mine, &program_of(&neighbour));
    assert!(seen.ends_with("listed: 0\n"), "{seen}");
    own.into_iter().chain([neighbour]).for_each(|guest| {
        guest.finish().silently();
    });
}

#[test]
fn versions_and_bad_arguments_are_refused_by_nvml_itself() {
    let gpu = Gpu::new("");
    let mut bare = plain(&gpu, &clients::compile("monitor", &[]));
    bare.arg("1");
    let bare = Guest::start(bare).finish().silently();
    let seen = monitor(&gpu, &["--mem-limit", "2GiB"], "1");
    for line in [
        "memory of no version: 25",
        "memory nowhere: 2",
        "details of no version: 2",
    ] {
        assert!(bare.contains(line) && seen.contains(line), "{bare}\n{seen}");
    }
}

#[test]
fn a_tenant_without_cuda_shows_its_limit_and_no_process() {
    let gpu = Gpu::new("");
    let neighbour = busy(&gpu, &["--mem-limit", "1GiB"], 512 * MIB);
    let seen = monitor(&gpu, &["--mem-limit", "2GiB"], &program_of(&neighbour));
    assert_eq!(number(&seen, "memory:", "total"), 2 * GIB, "{seen}");
    assert_eq!(number(&seen, "memory:", "used"), 0, "{seen}");
    assert!(
        seen.contains("processes: 0, 0\n") && seen.contains("how many: 0, 0\n"),
        "{seen}"
    );
    neighbour.finish().silently();
}

#[test]
fn without_a_limit_memory_is_the_devices_own() {
    let gpu = Gpu::new("mem=8GiB");
    let seen = monitor(&gpu, &[], "1");
    assert_eq!(number(&seen, "memory:", "total"), 8 * GIB, "{seen}");
}

#[test]
fn a_limit_by_ordinal_is_seen_before_cuda_counts_the_devices() {
    let gpu = Gpu::new("mem=16GiB,count=2");
    let limits = ["--mem-limit", "0=2GiB", "--mem-limit", "1=8GiB"];
    // The tool asks for NVML's first device. A program that CUDA shows only the second one has no
    // ordinal for it.
    for (visible, total) in [
        (None, 2 * GIB),
        (Some("0,1"), 2 * GIB),
        (Some("1,0"), 8 * GIB),
        (Some("1"), 16 * GIB),
    ] {
        let name = format!(
            "{}-{}",
            gpu.name(),
            visible.unwrap_or("all").replace(',', "-")
        );
        let flags = [&limits[..], &["--name", &name]].concat();
        let run = |client| {
            let mut run = command(&gpu, &flags);
            // Inside the tenant: `run` refuses a limit for a device that it does not see.
            run.arg("env");
            run.args(visible.map(|visible| format!("CUDA_VISIBLE_DEVICES={visible}")));
            run.arg(clients::compile(client, &[]));
            Guest::start(run)
        };
        let is_seen = || {
            let seen = run("monitor").finish().silently();
            let is = number(&seen, "memory:", "total");
            assert_eq!(is, total, "{visible:?}: {seen}");
        };
        is_seen();
        // The same as once a program of the tenant has started CUDA, where that sees the device.
        if visible != Some("1") {
            let own = run("quota").started();
            is_seen();
            own.finish().silently();
        }
    }
}

#[test]
fn a_look_has_the_limits_of_the_first_one_and_the_devices_chosen_since() {
    let gpu = Gpu::new("mem=16GiB,count=2");
    let limits = ["--mem-limit", "0=2GiB", "--mem-limit", "1=8GiB"];
    for (name, value, after) in [
        ("GPUSHARE_MEM_LIMIT_0", "4GiB", 2 * GIB),
        ("CUDA_VISIBLE_DEVICES", "1,0", 8 * GIB),
    ] {
        let mut run = command(&gpu, &limits);
        run.arg(clients::compile("chosen", &[])).args([name, value]);
        let seen = Guest::start(run).finish().silently();
        assert_eq!(seen, format!("{} {after}\n", 2 * GIB), "{name}");
    }
}

/// A tool's answers about the use of the device by processes, in a tenant with these flags.
fn samples(gpu: &Gpu, flags: &[&str], pid: &str) -> String {
    let mut run = command(gpu, flags);
    run.arg(clients::compile("samples", &[])).arg(pid);
    Guest::start(run).finish().silently()
}

#[test]
fn a_tenant_that_does_not_compute_has_no_samples_beside_one_that_does() {
    let gpu = Gpu::new("");
    let name = format!("{}-busy", gpu.name());
    let computes = ["--mem-limit", "1GiB", "--name", &name];
    let mut busy = Guest::client(&gpu, &computes, "moves").started();
    busy.does("launch 0 60000000000");
    let pid = program_of(&busy);
    let own = samples(&gpu, &computes, &pid);
    assert_eq!(own, "info 0 1 1\nroom 7 1\nlist 0 1 1\n");
    let none = samples(&gpu, &["--mem-limit", "2GiB"], &pid);
    assert_eq!(none, "info 6 0 0\nroom 6 0\nlist 6 0 0\n");
    busy.kill();
}

/// Kills the program under `run` and waits for the end of both.
fn killed(guest: Guest) {
    let program = program_of(&guest).parse().expect("a pid");
    kill(Pid::from_raw(program), Signal::SIGKILL).expect("it lives");
    assert!(!guest.finish().status.success());
}

#[test]
fn memory_of_dead_processes_is_not_used_and_that_of_siblings_is() {
    let gpu = Gpu::new("mem=16GiB");
    let mine = ["--mem-limit", "4GiB", "--name", gpu.name()];
    let [killed_one, ended, sibling] =
        [GIB, GIB / 2, 512 * MIB].map(|size| busy(&gpu, &mine, size));
    killed(killed_one);
    // Programs end without a call that frees.
    ended.finish().silently();
    // The driver lists them for a while yet.
    let pid = program_of(&sibling);
    until("the sibling's memory is all that is used", || {
        let seen = monitor(&gpu, &mine, &pid);
        let used = number(&seen, "memory:", "used");
        assert!(
            used >= 512 * MIB && seen.ends_with("listed: 15\n"),
            "{seen}"
        );
        used < 640 * MIB
    });
    killed(sibling);
    until("nothing is used", || {
        let seen = monitor(&gpu, &mine, "1");
        number(&seen, "memory:", "used") == 0 && number(&seen, "memory:", "free") == 4 * GIB
    });
}

#[test]
fn memory_that_the_driver_holds_of_a_dead_process_is_used() {
    let gpu = Gpu::new("mem=16GiB,linger=10000");
    let mine = ["--mem-limit", "4GiB", "--name", gpu.name()];
    // The driver's state is lost with its last user.
    let neighbour = busy(&gpu, &["--mem-limit", "4GiB"], MIB);
    let guest = busy(&gpu, &mine, GIB);
    let pid = program_of(&guest);
    killed(guest);
    let seen = monitor(&gpu, &mine, &pid);
    assert!(number(&seen, "memory:", "used") >= GIB, "{seen}");
    assert!(seen.ends_with("listed: 15\n"), "{seen}");
    neighbour.finish().silently();
}

#[test]
fn a_tenant_nobody_lives_in_shows_new_limits_a_lived_in_one_its_own() {
    let gpu = Gpu::new("mem=16GiB");
    let flags = |limit| ["--mem-limit", limit, "--name", gpu.name()];
    let guest = busy(&gpu, &flags("4GiB"), 512 * MIB);
    let seen = monitor(&gpu, &flags("4GiB"), "1");
    assert_eq!(number(&seen, "memory:", "total"), 4 * GIB, "{seen}");
    guest.finish().silently();
    let seen = monitor(&gpu, &flags("8GiB"), "1");
    assert_eq!(number(&seen, "memory:", "total"), 8 * GIB, "{seen}");
}

#[test]
fn lists_tell_of_no_neighbour_where_the_limits_do_not_fit() {
    let gpu = Gpu::new("mem=16GiB");
    let neighbour = busy(&gpu, &["--mem-limit", "1GiB"], 512 * MIB);
    let mut run = command(&gpu, &[]);
    run.args(["env", "GPUSHARE_MEM_REQUEST=20GiB"]);
    run.arg(clients::compile("monitor", &[]));
    run.arg(program_of(&neighbour));
    let seen = Guest::start(run).finish().silently();
    assert!(seen.contains("processes: 0, 0\n"), "{seen}");
    assert!(seen.ends_with("listed: 0\n"), "{seen}");
    // Outside of tenants all are listed.
    let mut bare = plain(&gpu, &clients::compile("monitor", &[]));
    bare.arg(program_of(&neighbour));
    let seen = Guest::start(bare).finish().silently();
    assert!(seen.ends_with("listed: 15\n"), "{seen}");
    neighbour.finish().silently();
}

#[test]
fn a_limit_in_percent_is_the_same_before_and_after_cuda_starts() {
    let gpu = Gpu::new("mem=16GiB,reserved=512MiB");
    let half = ["--mem-limit", "50%", "--name", gpu.name()];
    let seen = monitor(&gpu, &half, "1");
    assert_eq!(number(&seen, "memory:", "total"), 8 * GIB, "{seen}");
    let mut guest = busy(&gpu, &half, 512 * MIB);
    let seen = monitor(&gpu, &half, "1");
    assert_eq!(number(&seen, "memory:", "total"), 8 * GIB, "{seen}");
    assert_eq!(guest.ask("total"), format!("total {} 0", 8 * GIB));
    guest.finish().silently();
    // Without a limit NVML counts what the driver keeps.
    let seen = monitor(&gpu, &[], "1");
    assert_eq!(number(&seen, "memory:", "total"), 16 * GIB + 512 * MIB);
}

/// What NVML tells of sessions in a tenant with these flags.
fn told(gpu: &Gpu, flags: &[&str], pid: &str) -> String {
    let mut run = command(gpu, flags);
    run.arg(clients::compile("told", &[])).arg(pid);
    Guest::start(run).finish().silently()
}

#[test]
fn a_tenant_is_told_of_its_own_sessions_alone() {
    let gpu = Gpu::new("sessions=on");
    let name = |which: &str| format!("{}-{which}", gpu.name());
    let [mine, theirs] = ["mine", "theirs"].map(name);
    let mine = ["--mem-limit", "2GiB", "--name", &mine];
    let theirs = ["--mem-limit", "2GiB", "--name", &theirs];
    let [first, second] = [0; 2].map(|_| busy(&gpu, &mine, 64 * MIB));
    let neighbour = busy(&gpu, &theirs, 64 * MIB);
    let pid = program_of(&first);
    let both = "encoder 0 2 0 2 1\ncapture 0 2 0 2 1\nshort 7 2\n";
    assert!(told(&gpu, &mine, &pid).starts_with(both));
    let one = "encoder 0 1 0 1 0\ncapture 0 1 0 1 0\nshort 0 1\n";
    assert!(told(&gpu, &theirs, &pid).starts_with(one));
    let none = "encoder 0 0 0 0 0\ncapture 0 0 0 0 0\nshort 0 0\n";
    assert!(told(&gpu, &["--mem-limit", "1GiB"], &pid).starts_with(none));
    let mut bare = plain(&gpu, &clients::compile("told", &[]));
    bare.arg(&pid);
    let all = Guest::start(bare).finish().silently();
    assert!(all.starts_with("encoder 0 3 0 3 1\ncapture 0 3 0 3 1\nshort 7 3\n"));
    for guest in [first, second, neighbour] {
        guest.finish().silently();
    }
}

#[test]
fn a_thread_that_is_cancelled_in_a_call_ends_behind_it_as_without_a_limit() {
    let gpu = Gpu::new("");
    let client = clients::compile("cancelled", &[]);
    let ends = "memory 0 1\nprocesses 0 1\n";
    let bare = Guest::start(plain(&gpu, &client)).finish().silently();
    assert_eq!(bare, ends);
    let mine = ["--mem-limit", "1GiB", "--name", gpu.name()];
    let cancelled = || {
        let mut run = command(&gpu, &mine);
        run.arg(&client);
        assert_eq!(Guest::start(run).finish().silently(), ends);
    };
    cancelled();
    // The same beside a process whose row is looked at.
    let own = busy(&gpu, &mine, MIB);
    cancelled();
    own.finish().silently();
}

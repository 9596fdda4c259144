//! The cost of containers, printed and not asserted: the hook's own time, a create with it beside
//! one without, a program that starts under the preload file, and a hundred containers at once.
//! Each comparison is within one run, in turns.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gpushare_tests::clients::compile;
use gpushare_tests::container::{Bundle, Door, Lab, Runtime};
use gpushare_tests::runnable::not_runnable_here;
use gpushare_tests::{Guest, MIB, artefacts, until};

const TWO: [(&str, &str); 2] = [("mem-limit", "100MiB"), ("devices", "0")];
/// Names a library to measure instead of this build's.
const LIBRARY: &str = "GPUTEST_LIBRARY";
/// Names a hook to measure instead of this build's.
const HOOK: &str = "GPUTEST_HOOK";
/// The microseconds of each measured hook, a line each.
const TIMES: &str = "/var/lib/lab/times";
/// Pairs of creates.
const CREATES: usize = 200;
/// Programs that each of two containers executes.
const PROGRAMS: u32 = 300;
/// Containers at once.
const CROWD: u64 = 100;

fn lab() -> Option<Lab> {
    let test = std::thread::current();
    let test = test.name().unwrap_or("containers_times");
    if Command::new("runc").arg("--version").output().is_err() {
        not_runnable_here(test, "runc is not installed");
        return None;
    }
    let lab = Lab::start(test, "")?;
    if let Some(library) = std::env::var_os(LIBRARY) {
        let to = "/var/lib/lab/library/libgpushare.so";
        lab.sh(&format!("cp {} {to}", Path::new(&library).display()));
    }
    Some(lab)
}

fn said(id: &str, door: Door, line: &str) -> Bundle {
    Bundle {
        door,
        program: ["sh", "-c", line].map(str::to_owned).to_vec(),
        ..Bundle::new(id, Runtime::Runc, &TWO)
    }
}

fn at(sorted: &[Duration], percent: usize) -> f64 {
    sorted[(sorted.len() - 1) * percent / 100].as_secs_f64() * 1e3
}

/// The hooks of a create that is timed.
#[derive(Clone, Copy)]
enum Runs {
    /// No hook.
    None,
    /// A static program that does nothing.
    Empty,
    /// Ours.
    Ours,
    /// Ours, with its own time written down.
    Timed,
}

#[test]
#[ignore = "long tier: measures"]
fn a_create_with_the_hook_beside_one_without() {
    let Some(lab) = lab() else { return };
    let hook = artefacts::folder().join("gpushare-oci-hook");
    let measured = std::env::var_os(HOOK).map_or_else(|| hook.clone(), PathBuf::from);
    let flags = [
        format!("-DPROGRAM=\"{}\"", measured.display()),
        format!("-DTIMES=\"{TIMES}\""),
    ];
    let timer = compile("timer", &flags.each_ref().map(String::as_str));
    let empty = compile("empty", &["-static"]);
    let mut times: [Vec<Duration>; 3] = std::array::from_fn(|_| Vec::with_capacity(CREATES));
    for number in 0..CREATES {
        for runs in [Runs::None, Runs::Empty, Runs::Ours, Runs::Timed] {
            let (door, program) = match runs {
                Runs::None => (Door::None, &measured),
                Runs::Empty => (Door::Hook, &empty),
                Runs::Ours => (Door::Hook, &measured),
                Runs::Timed => (Door::Hook, &timer),
            };
            let bundle = said(&format!("c{}-{number}", runs as usize), door, "true");
            let mut command = creates(&lab.command(&bundle));
            replace(&lab, &bundle, &hook, program);
            let began = Instant::now();
            assert!(command.status().expect("it starts").success());
            if let Some(times) = times.get_mut(runs as usize) {
                times.push(began.elapsed());
            }
            delete(&lab, &bundle);
        }
    }
    let which = match measured == hook {
        true => profile(),
        false => "the packaged hook",
    };
    let own = lab.sh(&format!("cat {TIMES}"));
    let own = own
        .lines()
        .map(|line| Duration::from_micros(line.parse().expect("a number")));
    let mut own: Vec<Duration> = own.collect();
    own.sort();
    assert_eq!(own.len(), CREATES);
    eprintln!(
        "time: the hook's own time, with its start: median {:.1} ms, p99 {:.1} ms of {CREATES} ({which})",
        at(&own, 50),
        at(&own, 99),
    );
    // Of creates beside each other, so that a machine that slows down counts for all alike.
    let [bare, empty, ours] = &times;
    let [with_empty, with_ours, own] =
        [(empty, bare), (ours, bare), (ours, empty)].map(|(one, other)| median_more(one, other));
    for times in &mut times {
        times.sort();
    }
    let [bare, empty, ours] = times.each_ref().map(|times| at(times, 50));
    eprintln!(
        "time: runc create, median of {CREATES}: {bare:.1} ms bare, {empty:.1} ms with an empty hook ({with_empty:+.1} ms), \
         {ours:.1} ms with ours ({with_ours:+.1} ms; {own:+.1} ms beside the empty one)"
    );
}

/// The median of the differences of pairs, in milliseconds.
fn median_more(one: &[Duration], other: &[Duration]) -> f64 {
    let pairs = one.iter().zip(other);
    let more = pairs.map(|(one, other)| one.as_secs_f64() - other.as_secs_f64());
    let mut more: Vec<f64> = more.collect();
    more.sort_by(f64::total_cmp);
    more[more.len() / 2] * 1e3
}

/// Has a bundle's configuration run another program than the hook of this build.
fn replace(lab: &Lab, bundle: &Bundle, hook: &Path, instead: &Path) {
    lab.sh(&format!(
        "sed -i 's,\"path\":\"{}\",\"path\":\"{}\",' {}/config.json",
        hook.display(),
        instead.display(),
        lab.folder_of(bundle).display()
    ));
}

/// The command of a container that only creates it.
fn creates(run: &Command) -> Command {
    let words = run.get_args().map(|word| match word.to_str() {
        Some("run") => "create".as_ref(),
        _ => word,
    });
    let mut command = Command::new(run.get_program());
    command
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    for (name, value) in run.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Ends a container that never ran, as an engine does: the machine's mount table does not grow.
fn delete(lab: &Lab, bundle: &Bundle) {
    let folder = lab.folder_of(bundle);
    lab.sh(&format!(
        "runc --root /var/lib/lab/state delete --force {}; umount -l {}/rootfs",
        bundle.id,
        folder.display()
    ));
}

fn profile() -> &'static str {
    match artefacts::folder().ends_with("release") {
        true => "release build",
        false => "debug build",
    }
}

#[test]
#[ignore = "long tier: measures"]
fn a_program_without_cuda_under_the_preload_file() {
    let Some(lab) = lab() else { return };
    let line = format!(
        "read go; i=0; while [ $i -lt {PROGRAMS} ]; do /bin/true; i=$((i+1)); done; echo end"
    );
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for number in 0..6 {
        for (door, times) in [(Door::Hook, &mut with), (Door::None, &mut without)] {
            let mut guest = lab.run(&said(&format!("{door:?}-{number}"), door, &line));
            let began = Instant::now();
            assert_eq!(guest.ask("go"), "end");
            times.push(began.elapsed() / PROGRAMS);
        }
    }
    with.sort();
    without.sort();
    eprintln!(
        "time: an exec of /bin/true in a container: median {:.2} ms with our preload, {:.2} ms without: {:+.2} ms ({})",
        at(&with, 50),
        at(&without, 50),
        at(&with, 50) - at(&without, 50),
        if std::env::var_os(LIBRARY).is_some() {
            "the packaged library"
        } else {
            profile()
        }
    );
}

#[test]
#[ignore = "long tier: a hundred containers"]
fn a_hundred_containers_at_once_have_their_limits() {
    let Some(lab) = lab() else { return };
    let bundle = |number: u64| {
        let limit = format!("{}MiB", 20 + number);
        let asks = [("mem-limit", limit.as_str()), ("mem-request", "1MiB")];
        Bundle::new(&format!("c{number}"), Runtime::Runc, &asks)
    };
    // Until one is measured, a context counts with more than most take: a fresh node would promise
    // its memory to fewer.
    let mut first = lab.run(&bundle(CROWD)).started();
    assert_eq!(first.ask(&format!("alloc {MIB}")), "alloc 0");
    let name = format!("c{CROWD}");
    until("a context is measured", || {
        let overhead = lab.row(&name).and_then(|row| row["overhead"].as_u64());
        overhead.is_some_and(|bytes| bytes > 0 && bytes <= 100 * MIB)
    });
    first.finish().silently();
    let commands: Vec<Command> = (0..CROWD)
        .map(|number| lab.command(&bundle(number)))
        .collect();
    let began = Instant::now();
    let mut guests: Vec<Guest> = commands.into_iter().map(Guest::start).collect();
    for guest in &mut guests {
        guest.send("init");
    }
    for guest in &mut guests {
        assert_eq!(guest.line(), "init 0");
    }
    eprintln!(
        "time: {CROWD} containers at once, until each has started CUDA: {:.1} s",
        began.elapsed().as_secs_f64()
    );
    for (number, guest) in (0..).zip(&mut guests) {
        let limit = (20 + number) * MIB;
        assert_eq!(guest.ask("total"), format!("total {limit} 0"));
        assert_eq!(guest.ask(&format!("alloc {}", 10 * MIB)), "alloc 0");
        assert_eq!(guest.ask(&format!("alloc {limit}")), "alloc 2");
    }
    let began = Instant::now();
    for guest in guests {
        guest.finish();
    }
    until("nothing is left", || {
        lab.sh("ls /run/gpushare/sockets").is_empty()
    });
    eprintln!(
        "time: until nothing is left of them: {:.1} s",
        began.elapsed().as_secs_f64()
    );
}

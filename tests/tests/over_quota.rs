//! A call that is invalid and over the quota returns the same error as without gpushare; a call
//! that is only over the quota runs out of memory. Nothing is allocated on the way.

use std::path::Path;
use std::process::Command;

use gpushare_tests::guest::{command, plain};
use gpushare_tests::{Daemon, Gpu, Guest, MIB, clients};
use softgpu::inspect::Observer;

const SUCCESS: &str = "0";
const OUT_OF_MEMORY: &str = "2";
/// The limit is below every request of the client.
const LIMIT: u64 = 64 * MIB;

/// Names of calls and their answers.
type Answers = Vec<(String, String)>;

fn answers(mut run: Command, section: &str) -> Answers {
    let output = run.arg(section).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{section}: {text}{errors}");
    assert!(errors.is_empty(), "{section}: {errors}");
    let pair = |line: &str| {
        let (name, answer) = line.split_once(' ').expect("a name and an answer");
        (name.to_owned(), answer.to_owned())
    };
    text.lines().map(pair).collect()
}

/// The expected answers under the quota: calls that succeed without it run out of memory.
fn expected(bare: Answers) -> Answers {
    let under = |(name, answer): (String, String)| {
        let is_right = name.contains(".right");
        let answer = match &*answer {
            // A relaxed capture stays valid, whatever the result of an allocation during it.
            SUCCESS if is_right && !name.ends_with("_end") => OUT_OF_MEMORY.to_owned(),
            _ => answer,
        };
        (name, answer)
    };
    bare.into_iter().map(under).collect()
}

fn bare(program: &Path, section: &str) -> Answers {
    let answers = answers(plain(&Gpu::new(""), program), section);
    let wrong = answers.iter().filter(|(name, _)| !name.contains("right"));
    let wrong: Vec<_> = wrong.filter(|(_, answer)| answer == SUCCESS).collect();
    assert!(wrong.is_empty(), "not wrong at all: {wrong:?}");
    answers
}

fn a_wrong_call_over_the_quota(section: &str) {
    let program = clients::compile("wrong", &[]);
    let wanted = expected(bare(&program, section));
    let gpu = Gpu::new("");
    let spec = gpu.spec().parse().expect("a valid SPEC");
    let observer = Observer::open(&spec).expect("softgpu's state opens");
    let mut hooked = command(&gpu, &["--mem-limit", "64MiB"]);
    hooked.arg(&program);
    assert_eq!(answers(hooked, section), wanted);
    let truth = observer.snapshot().expect("softgpu's state is there");
    let peak = truth.devices[0].requested_peak;
    assert!(peak <= LIMIT, "{peak} bytes at the peak");
}

macro_rules! sections {
    ($($test:ident: $section:literal;)*) => {$(
        #[test]
        fn $test() {
            a_wrong_call_over_the_quota($section);
        }
    )*};
}

sections! {
    a_wrong_cu_mem_alloc_over_quota_answers_as_without_one: "linear";
    a_wrong_pitched_allocation_over_quota_answers_as_without_one: "pitch";
    a_wrong_managed_allocation_over_quota_answers_as_without_one: "managed";
    wrong_physical_memory_over_quota_answers_as_without_one: "vmm";
    a_wrong_ordered_allocation_over_quota_answers_as_without_one: "async";
    a_wrong_array_over_quota_answers_as_without_one: "array";
    a_wrong_graph_over_quota_answers_as_without_one: "graph";
    an_allocation_over_quota_invalidates_the_capture_that_forbids_it: "capture";
    a_lost_context_says_so_over_quota_too: "lost";
    a_context_beside_a_lost_one_says_so_over_quota_too: "beside";
    without_a_context_that_is_said_over_quota_too: "bare";
}

/// A tenant that may burst over its request, and waits for a day.
const WAITS: [(&str, &str); 3] = [
    ("GPUSHARE_MEM_LIMIT", "1GiB"),
    ("GPUSHARE_MEM_REQUEST", "1MiB"),
    ("GPUSHARE_WAIT_TIMEOUT", "24h"),
];

#[test]
fn a_wrong_call_does_not_wait_for_memory_and_a_right_one_does() {
    let wanted = bare(&clients::compile("wrong", &[]), "waits");
    let gpu = Gpu::new("mem=4GiB");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("waits", &WAITS);
    let mut command = tenant.command(&clients::compile("wrong", &[]));
    command.args(["waits", "held"]);
    let mut wrong = Guest::start(command);
    assert_eq!(wrong.line(), "ready 0");
    let mut right = tenant.client("quota", &[]).started();
    let all = [
        ("GPUSHARE_MEM_LIMIT", "4GiB"),
        ("GPUSHARE_MEM_REQUEST", "1MiB"),
        ("GPUSHARE_ON_COLLISION", "fail"),
    ];
    let neighbour = daemon.tenant("neighbour", &all);
    let mut holder = neighbour.client("quota", &[]).started();
    let held = holder.ask(&format!("fill {}", 16 * MIB));
    assert!(held.ends_with(" 2"), "it holds all there is: {held}");
    right.send(&format!("alloc {}", 512 * MIB));
    daemon.until_one_waits("waits");
    wrong.send("go");
    for (name, answer) in wanted {
        assert_eq!(wrong.line(), format!("{name} {answer}"));
    }
    daemon.until_one_waits("waits");
    wrong.finish().silently();
    holder.finish().silently();
    assert_eq!(right.line(), "alloc 0");
    right.finish().silently();
}

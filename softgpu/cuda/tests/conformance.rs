//! softgpu gives the answers of the conformance transcript. Prints how many of them a real driver
//! has confirmed.
#![allow(clippy::unwrap_used, reason = "a test fails on any error")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, thread};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance")
}

/// The program of facts, compiled under a name.
fn program(name: &str) -> PathBuf {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let files = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let sources = files.filter(|path| path.extension().is_some_and(|extension| extension == "c"));
    let mut compile = Command::new("cc");
    // To optimise it takes longer than it runs.
    compile
        .args(["-std=gnu11", "-O0", "-o"])
        .arg(&program)
        .args(sources)
        .args(["-ldl", "-lpthread"]);
    assert!(compile.status().expect("a C compiler").success());
    program
}

/// Some facts are of drivers from 13.1 on, some of drivers before it, and some of two devices.
const DRIVERS: [u32; 2] = [13050, 13000];

/// The lines that the program prints on softgpu. What one driver lacks the other answers.
fn answers() -> Vec<String> {
    let program = program("facts");
    let program = program.as_path();
    let [newer, older] = thread::scope(|scope| {
        let runs = DRIVERS.map(|driver| scope.spawn(move || answers_of(program, driver)));
        runs.map(|run| run.join().unwrap())
    });
    assert_eq!(newer.len(), older.len());
    let pairs = newer.into_iter().zip(older);
    pairs
        .map(|(new, old)| {
            let (new_name, old_name) = (new.split('\t').next(), old.split('\t').next());
            assert_eq!(new_name, old_name);
            let absent = |line: &str| line.ends_with("\tabsent");
            assert!(
                new == old || absent(&new) || absent(&old),
                "{new}, and on an older driver {old}"
            );
            if absent(&new) { old } else { new }
        })
        .collect()
}

fn answers_of(program: &Path, driver: u32) -> Vec<String> {
    let library = env::current_exe()
        .unwrap()
        .with_file_name("libsoftgpu_cuda.so");
    let output = Command::new(program)
        .args(["--beyond", "--full"])
        .arg(library)
        .env("SOFTGPU", format!("driver={driver},count=2,reuse=lifo"))
        .env(
            "SOFTGPU_PRIVATE",
            format!("facts-{}-{driver}", std::process::id()),
        )
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Whether an answer of softgpu agrees with a line of the transcript. Where a call ends a process
/// on a real driver, any answer but success does.
fn agrees(line: &str, answer: &str) -> bool {
    let (Some((fact, wanted)), Some((asked, given))) =
        (line.split_once('\t'), answer.split_once('\t'))
    else {
        return false;
    };
    let ended = wanted.starts_with("signal ") && given != "SUCCESS";
    fact == asked && (wanted == given || ended)
}

#[test]
fn any_error_agrees_with_a_call_that_ended_a_process_elsewhere() {
    assert!(agrees("a.b\tsignal 11", "a.b\tINVALID_VALUE"));
    assert!(!agrees("a.b\tsignal 11", "a.b\tSUCCESS"));
    assert!(!agrees("a.b\tsignal 11", "a.c\tINVALID_VALUE"));
    assert!(agrees("a.b\tINVALID_VALUE", "a.b\tINVALID_VALUE"));
    assert!(!agrees("a.b\tINVALID_VALUE", "a.b\tsignal 11"));
}

/// A driver whose `cuGetProcAddress_v2` follows a null name, that lacks `cuGraphGetId` and all that
/// other families begin with.
const CRASHING: &str = r#"
#include <stddef.h>
int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuGetErrorName(int error, const char **name) { return *name = error ? "CUDA_ERROR_X" : "CUDA_SUCCESS", 0; }
int cuGetProcAddress_v2(const char *name, void **pointer, int version, long flags, int *status) {
  *pointer = name[0] ? (void *)cuInit : NULL;
  return version > 13000;
}
int cuGetProcAddress(const char *name, void **pointer, int version, long flags) { return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuGraphCreate(void **graph, unsigned flags) { return 0; }
int cuGraphAddEmptyNode(void **node, void *graph, void *after, size_t count) { return 0; }
int cuGraphDebugDotPrint(void *graph, const char *path, unsigned flags) { return 0; }
"#;

/// Compiles this driver under a name, with these flags.
fn driver(name: &str, text: &str, flags: &[&OsStr]) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join(name).with_extension("c");
    let library = source.with_extension("so");
    fs::write(&source, text).unwrap();
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-w", "-o"]).arg(&library);
    compile.arg(&source).args(flags);
    assert!(compile.status().unwrap().success());
    library
}

/// The same, where `cuGetProcAddress_v2` says so and never returns. Only a kill ends the process.
fn hanging(name: &str) -> PathBuf {
    let at = "int version, long flags, int *status) {";
    let hangs = "sigset_t all; sigfillset(&all); sigprocmask(SIG_BLOCK, &all, NULL); \
                 write(2, \"hangs\\n\", 6); for (;;) pause();";
    let text = CRASHING.replace(at, &format!("{at} {hangs}"));
    assert_ne!(text, CRASHING);
    let text = format!("#include <signal.h>\n#include <unistd.h>\n{text}");
    driver(name, &text, &[])
}

#[test]
fn a_family_that_hangs_ends_and_the_next_ones_are_asked() {
    let output = Command::new(program("facts-of-hanging"))
        .arg(hanging("hanging"))
        .env("FACTS_PATIENCE", "1")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && said.contains("lookup.ended\tsignal 9\n"),
        "{said}"
    );
    assert!(said.contains("told.graph\tabsent\n"), "{said}");
}

/// softgpu, whose device shows free memory 1 ms late, as real ones do.
const LATE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
static size_t shown;
static long long since;
int cuMemGetInfo_v2(size_t *free, size_t *all) {
  struct timespec now;
  int (*real)(size_t *, size_t *) = dlsym(RTLD_NEXT, "cuMemGetInfo_v2");
  int answer = real(free, all);
  clock_gettime(CLOCK_MONOTONIC, &now);
  long long at = now.tv_sec * 1000000000ll + now.tv_nsec;
  if (*free > shown && shown) {
    if (!since) since = at;
    if (at - since < 1000000) return *free = shown, answer;
  }
  since = 0, shown = *free;
  return answer;
}
"#;

#[test]
fn memory_that_is_free_a_moment_later_is_seen_to_be_free() {
    let softgpu = env::current_exe().unwrap();
    let softgpu = softgpu.with_file_name("libsoftgpu_cuda.so");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("late");
    fs::create_dir_all(&folder).unwrap();
    let named = folder.join("libcuda.so.1");
    drop(fs::remove_file(&named));
    symlink(&softgpu, &named).unwrap();
    let linked = ["-Wl,--no-as-needed".as_ref(), named.as_os_str()];
    let late = driver("late-frees", LATE, &linked);
    let output = Command::new(program("facts-of-late"))
        .args(["--only", "kept"])
        .arg(late)
        .env("LD_LIBRARY_PATH", &folder)
        .env("SOFTGPU_PRIVATE", format!("late-{}", std::process::id()))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    for line in ["memory_is_taken\tyes", "then_it_is_free\tyes"] {
        assert!(said.contains(&format!("kept.{line}\n")), "{said}");
    }
}

#[test]
fn a_killed_comparison_leaves_the_answers_that_it_had() {
    let copy = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("killed");
    drop(fs::remove_dir_all(&copy));
    fs::create_dir_all(&copy).unwrap();
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
    }
    let answers = copy.join("answers");
    let mut run = Command::new(copy.join("run.sh"));
    run.arg("--answers")
        .arg(&answers)
        .arg(hanging("hanging-on"));
    let run = run.stderr(Stdio::piped()).process_group(0);
    let mut run = run.spawn().unwrap();
    let mut said = BufReader::new(run.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap() == "hangs"));
    let group = format!("-{}", run.id());
    let mut kill = Command::new("kill");
    assert!(
        kill.args(["-KILL", "--", &group])
            .status()
            .unwrap()
            .success()
    );
    assert!(!run.wait().unwrap().success());
    let had = fs::read_to_string(&answers).unwrap();
    assert_eq!(had, "start.missing.cuDeviceGetCount\tabsent\n");
}

#[test]
fn a_call_that_ends_the_process_is_one_fact_and_the_rest_goes_on() {
    let library = driver("crashing", CRASHING, &[]);
    let output = Command::new(program("facts-of-crashing"))
        .arg(library)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let of = |family: &str| {
        let own = |line: &&str| line.starts_with(family);
        said.lines().filter(own).collect::<Vec<_>>()
    };
    let lookup = of("lookup.");
    let name = |line: &&str| line.split_once('\t').unwrap().0.to_owned();
    let names: BTreeSet<String> = lookup.iter().map(name).collect();
    assert_eq!(names.len(), lookup.len(), "each fact once: {lookup:#?}");
    for line in [
        "lookup.unknown_flags\tSUCCESS",
        "lookup.null_name\tsignal 11",
        "lookup.null_pointer\tsignal 11",
        "lookup.first_version.unknown_name\tSUCCESS",
    ] {
        assert!(lookup.contains(&line), "{line}: {lookup:#?}");
    }
    assert!(!said.contains("lookup.ended"));
    let told = of("told.");
    assert!(told.contains(&"told.graph\tabsent"), "{told:#?}");
    assert!(
        told.contains(&"told.home_is_the_graph\tabsent"),
        "{told:#?}"
    );
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("lookup: its call"), "{stderr}");
}

#[test]
fn a_record_keeps_lines_without_an_answer_and_those_of_absent_functions() {
    let copy = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("record");
    fs::create_dir_all(&copy).unwrap();
    fs::copy(folder().join("run.sh"), copy.join("run.sh")).unwrap();
    let lines = "a.asked\tSUCCESS\tunverified\na.absent\t1\tunverified\na.other\t2\told\n";
    fs::write(copy.join("transcript.tsv"), lines).unwrap();
    fs::write(
        copy.join("answers"),
        "a.asked\tsignal 11\na.absent\tabsent\n",
    )
    .unwrap();
    let mut record = Command::new(copy.join("run.sh"));
    record.arg("--answers").arg(copy.join("answers"));
    let output = record.args(["--record", "a driver"]).output().unwrap();
    assert!(output.status.success());
    let recorded = fs::read_to_string(copy.join("transcript.tsv")).unwrap();
    let wanted = "a.asked\tsignal 11\ta driver\na.absent\t1\tunverified\na.other\t2\told\n";
    assert_eq!(recorded, wanted);
}

#[test]
fn softgpu_gives_every_answer_of_the_transcript() {
    let transcript = fs::read_to_string(folder().join("transcript.tsv")).unwrap();
    let lines: Vec<(&str, &str)> = transcript
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.rsplit_once('\t').unwrap())
        .collect();
    let answers = answers();
    let unverified = lines
        .iter()
        .filter(|(_, driver)| *driver == "unverified")
        .count();
    println!(
        "{} facts recorded on a real driver, {} unverified",
        lines.len() - unverified,
        unverified
    );
    let differ = lines
        .iter()
        .map(|(fact, _)| *fact)
        .filter(|fact| !answers.iter().any(|answer| agrees(fact, answer)));
    let new = answers
        .iter()
        .map(String::as_str)
        .filter(|answer| !lines.iter().any(|(fact, _)| agrees(fact, answer)));
    let (differ, new): (Vec<_>, Vec<_>) = (differ.collect(), new.collect());
    assert!(
        differ.is_empty() && new.is_empty(),
        "the transcript says {differ:#?}\nsoftgpu says {new:#?}"
    );
    let name = |line: &str| line.split('\t').next().map(str::to_owned);
    assert!(
        lines
            .iter()
            .map(|(fact, _)| name(fact))
            .eq(answers.iter().map(|answer| name(answer))),
        "the facts must be in the transcript's order"
    );
}

//! CUDA runtimes bind the driver through the library exactly as without it.
//!
//! The transcripts in `data/cudart` hold every look-up that a release of libcudart makes when it
//! starts. A replay repeats them on the software GPU, alone and under gpushare. Every answer is
//! equal, and a hooked function resolves to our hook of exactly the requested variant. The
//! undocumented tables that a runtime also requests are neither answered nor replayed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpushare_cuda_abi::symbols::{CudaSymbol, cuda_by_name, cuda_by_version};
use gpushare_tests::{Gpu, clients, guest};

/// A line of a transcript.
#[derive(Debug)]
struct Question {
    door: String,
    name: String,
    version: u32,
    flags: u64,
    /// Result, status and whether a function was returned, when it was recorded.
    answer: [String; 3],
}

impl Question {
    fn parse(line: &str) -> Self {
        let [door, name, version, flags, result, status, found] =
            line.split('\t').collect::<Vec<_>>()[..]
        else {
            panic!("not a line of a transcript: {line:?}");
        };
        Self {
            door: door.to_owned(),
            name: name.to_owned(),
            version: version.parse().expect("a version"),
            flags: flags.parse().expect("flags"),
            answer: [result, status, found].map(str::to_owned),
        }
    }

    /// The function that the look-up means on a driver of CUDA `driver`, if the symbol table has
    /// one.
    fn means(&self, driver: u32) -> Option<&'static CudaSymbol> {
        let row = match self.door.as_str() {
            "dlsym" => cuda_by_name(&self.name),
            _ => cuda_by_version(&self.name, self.version.min(driver), self.flags),
        };
        row.map(|(_, row)| row)
    }
}

/// The answer to a replayed lookup: as recorded, and the function's address.
#[derive(Debug)]
struct Answer {
    answer: [String; 3],
    library: String,
    symbol: String,
}

/// A transcript and the version of the driver it was recorded on.
fn transcript(name: &str) -> (PathBuf, Vec<Question>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("data/cudart")
        .join(format!("{name}.tsv"));
    let text = std::fs::read_to_string(&path).expect("a transcript");
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.starts_with("door\t"));
    let questions = lines
        .map(Question::parse)
        .filter(|question| question.door != "cuGetExportTable")
        .collect();
    (path, questions)
}

fn replayed(mut command: Command, transcript: &Path) -> Vec<Answer> {
    let output = command.arg(transcript).output().expect("the replay starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines = String::from_utf8(output.stdout).expect("text");
    let parse = |line: &str| {
        let cells: Vec<String> = line.split('\t').map(str::to_owned).collect();
        let [result, status, found, library, symbol] =
            <[String; 5]>::try_from(cells).expect("five answers a line");
        Answer {
            answer: [result, status, found],
            library,
            symbol,
        }
    };
    lines.lines().map(parse).collect()
}

/// The look-ups of one release, answered by the driver alone and under gpushare.
fn both(transcript_name: &str, driver: u32) -> Vec<(Question, Answer, Answer)> {
    let (path, questions) = transcript(transcript_name);
    let gpu = Gpu::new(&format!("driver={driver}"));
    let replay = clients::compile("replay", &[]);
    let alone = replayed(guest::plain(&gpu, &replay), &path);
    let mut under = guest::command(&gpu, &["--mem-limit", "1GiB"]);
    under.arg(&replay);
    let under = replayed(under, &path);
    assert_eq!(
        (alone.len(), under.len()),
        (questions.len(), questions.len()),
        "every question is answered"
    );
    questions
        .into_iter()
        .zip(alone)
        .zip(under)
        .map(|((question, alone), under)| (question, alone, under))
        .collect()
}

fn binds_as_recorded(release: &str, driver: u32) {
    let mut hooks = BTreeSet::new();
    for (question, alone, under) in both(release, driver) {
        assert_eq!(
            under.answer, alone.answer,
            "under gpushare the driver has the functions it has: {question:?}"
        );
        let row = question.means(driver);
        // A function that the software GPU has gained since may be found now; a recorded function
        // must not be missing.
        if question.answer[2] == "1" || row.is_none() {
            assert_eq!(
                alone.answer, question.answer,
                "answered as recorded: {question:?}"
            );
        }
        assert_ne!(alone.library, "libgpushare.so");
        let ours = under.library == "libgpushare.so";
        match row.filter(|_| under.answer[2] == "1") {
            Some(row) if row.hooked() => {
                assert!(ours, "{} is left to the driver: {question:?}", row.name);
                assert_eq!(
                    under.symbol, row.name,
                    "the variant that was asked for: {question:?}"
                );
                hooks.insert(row.name);
            }
            _ => assert!(!ours, "a hook where none belongs: {question:?} {under:?}"),
        }
    }
    for name in [
        "cuGetProcAddress",
        "cuMemAlloc_v2",
        "cuMemFree_v2",
        "cuMemGetInfo_v2",
        "cuMemAllocAsync_ptsz",
    ] {
        assert!(
            hooks.contains(name),
            "{release} binds {name}, and got no hook of it"
        );
    }
}

#[test]
fn without_cu_get_proc_address_a_runtime_binds_by_exported_names() {
    binds_as_recorded("11.8.89-on-11.2", 11020);
}

#[test]
fn the_last_runtime_of_cuda_11_binds_by_the_first_cu_get_proc_address() {
    binds_as_recorded("11.8.89-on-11.8", 11080);
}

#[test]
fn the_first_runtime_of_cuda_12_binds_by_the_second_cu_get_proc_address() {
    binds_as_recorded("12.0.146-on-12.0", 12000);
}

#[test]
fn the_last_runtime_of_cuda_12_binds_as_without_us() {
    binds_as_recorded("12.9.79-on-12.9", 12090);
}

#[test]
fn the_first_runtime_of_cuda_13_binds_as_without_us() {
    binds_as_recorded("13.0.96-on-13.0", 13000);
}

#[test]
fn the_newest_runtime_of_cuda_13_binds_as_without_us() {
    binds_as_recorded("13.5.37-on-13.5", 13050);
}

#[test]
fn an_old_driver_gives_a_new_runtime_no_function_it_lacks() {
    for (question, alone, under) in both("12.9.79-on-12.9", 11080) {
        assert_eq!(under.answer, alone.answer, "{question:?}");
        // The software GPU exports every name in every version, so only the versioned look-up shows
        // the difference.
        if question.door != "dlsym" && under.answer[2] == "1" {
            let row = question
                .means(11080)
                .expect("every function found is in the table");
            assert!(
                row.min_version <= 11080,
                "{} is newer than the driver",
                row.name
            );
        }
    }
}

//! `gpushare bench swapper`: one process with memory of known contents. It answers one command a
//! line, and ends when its standard input does.
//!
//! | command | answer |
//! |---|---|
//! | `write SEED` | `wrote NS`: all its memory follows from the seed, and the copies took so long |
//! | `read SEED` | `read NS WRONG`: the copies back, and the pages that were otherwise |
//! | `pairs COUNT` | `pairs NS`: a small allocation and its free took so long, in the mean |
//! | `work TO` | `worked NS`: it launched until this moment, and its kernels took so long alone |
//! | `worked FROM TO` | `worked NS`: the same of those that ended between these moments |

use crate::args::BenchSwapper;
use crate::bench::clock;
use crate::failure::Failure;
use crate::output;
use gpushare_sys::cuda::{Gpu, Memory, Stream};
use std::io::{BufRead, stdin};
use std::process::ExitCode;

/// The time that one kernel takes alone, and how many are submitted at once.
const KERNEL: u64 = 1_000_000;
const BATCH: u64 = 4;

/// Runs it.
pub(crate) fn run(arguments: &BenchSwapper) -> Result<ExitCode, Failure> {
    let failed = |error: String| Failure::ours(format!("a tenant of the benchmark: {error}"));
    let bytes = usize::try_from(arguments.bytes).map_err(Failure::ours)?;
    let gpu = Gpu::open(0).map_err(failed)?;
    let stream = gpu.stream().map_err(failed)?;
    let mut memory = gpu.memory(bytes).map_err(failed)?;
    let mut ends = Vec::new();
    output::data("ready")?;
    for line in stdin().lock().lines() {
        let line = line.map_err(Failure::ours)?;
        let answer = answer(&line, &gpu, &stream, (&mut memory, &mut ends)).map_err(failed)?;
        output::data(&answer)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn answer<'gpu>(
    line: &str,
    gpu: &'gpu Gpu,
    stream: &Stream<'gpu>,
    (memory, ends): (&mut Memory<'gpu>, &mut Vec<u64>),
) -> Result<String, String> {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |word: &str| word.parse::<u64>().map_err(|_| format!("{line:?}"));
    Ok(match words[..] {
        ["write", seed] => format!("wrote {}", memory.write(number(seed)?)?.as_nanos()),
        ["read", seed] => {
            let (took, wrong) = memory.read(number(seed)?)?;
            format!("read {} {wrong}", took.as_nanos())
        }
        ["pairs", count] => {
            let count = u32::try_from(number(count)?).map_err(|error| error.to_string())?;
            format!("pairs {}", gpu.small_pairs(count)?.as_nanos())
        }
        ["work", to] => {
            *ends = work(gpu, stream, number(to)?)?;
            format!("worked {}", took(ends.len()))
        }
        ["worked", from, to] => {
            let counted = number(from)?..number(to)?;
            let ends = ends.iter().filter(|end| counted.contains(end));
            format!("worked {}", took(ends.count()))
        }
        _ => return Err(format!("{line:?} is no command")),
    })
}

/// How long so many batches take alone.
fn took(batches: usize) -> u64 {
    batches as u64 * BATCH * KERNEL
}

/// Keeps two batches of kernels on the device until `to`: when each batch ended.
fn work<'gpu>(gpu: &'gpu Gpu, stream: &Stream<'gpu>, to: u64) -> Result<Vec<u64>, String> {
    let events = [gpu.event()?, gpu.event()?];
    let submit = |at: usize| {
        (0..BATCH).try_for_each(|_| stream.spin(KERNEL))?;
        stream.record(&events[at])
    };
    submit(0)?;
    let (mut ends, mut at) = (Vec::new(), 0);
    loop {
        submit(1 - at)?;
        events[at].wait()?;
        let now = clock::now();
        if now >= to {
            stream.synchronize()?;
            return Ok(ends);
        }
        ends.push(now);
        at = 1 - at;
    }
}

//! `gpushare bench swapper`: one process with memory of known contents. It answers one command a
//! line, and ends when its standard input does.
//!
//! | command | answer |
//! |---|---|
//! | `write SEED` | `wrote NS`: all its memory follows from the seed, and the copies took so long |
//! | `read SEED` | `read NS WRONG`: the copies back, and the pages that were otherwise |
//! | `work FROM TO` | `worked NS`: device time of its kernels that ended between these moments |

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
    output::data("ready")?;
    for line in stdin().lock().lines() {
        let line = line.map_err(Failure::ours)?;
        let answer = answer(&line, &gpu, &stream, &mut memory).map_err(failed)?;
        output::data(&answer)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn answer<'gpu>(
    line: &str,
    gpu: &'gpu Gpu,
    stream: &Stream<'gpu>,
    memory: &mut Memory<'gpu>,
) -> Result<String, String> {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |word: &str| word.parse::<u64>().map_err(|_| format!("{line:?}"));
    Ok(match words[..] {
        ["write", seed] => format!("wrote {}", memory.write(number(seed)?)?.as_nanos()),
        ["read", seed] => {
            let (took, wrong) = memory.read(number(seed)?)?;
            format!("read {} {wrong}", took.as_nanos())
        }
        ["work", from, to] => {
            let done = work(gpu, stream, (number(from)?, number(to)?))?;
            format!("worked {done}")
        }
        _ => return Err(format!("{line:?} is no command")),
    })
}

/// Keeps two batches of kernels on the device until `to`: the device time of the kernels that ended
/// since `from`.
fn work<'gpu>(
    gpu: &'gpu Gpu,
    stream: &Stream<'gpu>,
    (from, to): (u64, u64),
) -> Result<u64, String> {
    let events = [gpu.event()?, gpu.event()?];
    let submit = |at: usize| {
        (0..BATCH).try_for_each(|_| stream.spin(KERNEL))?;
        stream.record(&events[at])
    };
    submit(0)?;
    let (mut done, mut at) = (0, 0);
    loop {
        submit(1 - at)?;
        events[at].wait()?;
        let now = clock::now();
        if (from..to).contains(&now) {
            done += BATCH * KERNEL;
        }
        if now >= to {
            stream.synchronize()?;
            return Ok(done);
        }
        at = 1 - at;
    }
}

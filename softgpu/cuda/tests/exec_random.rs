//! Random programs checked against a model: every value that is read must be allowed by the order
//! that streams, events and the legacy default stream establish.
#![allow(clippy::unwrap_used, reason = "a test fails on any error")]

use std::collections::{BTreeSet, HashMap};

use crate::driver::*;
use gpushare_cuda_abi::cuda::{CUevent, CUstream};

const WORDS: usize = 6;
const STEPS: usize = 300;

/// A linear congruential sequence, which generates the program of a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

/// Operations by number, each with all operations that are complete before it begins.
#[derive(Default)]
struct Model {
    /// All operations before an operation, itself included.
    before: Vec<BTreeSet<usize>>,
    /// The last operation of each stream; the stream's next operation follows it.
    last: HashMap<usize, usize>,
    /// The operation that each event records.
    recorded: HashMap<usize, usize>,
    /// The writers of each word.
    writers: HashMap<usize, Vec<usize>>,
}

/// Stream 0 is the legacy default stream, 1 and 2 are blocking, the others non-blocking.
const LEGACY: usize = 0;

const fn is_blocking(stream: usize) -> bool {
    stream <= 2
}

impl Model {
    fn op(&mut self, stream: usize, also: Option<usize>) -> usize {
        let id = self.before.len();
        let mut after: Vec<usize> = self
            .last
            .get(&stream)
            .copied()
            .into_iter()
            .chain(also)
            .collect();
        if stream == LEGACY {
            after.extend(
                self.last
                    .iter()
                    .filter(|(other, _)| is_blocking(**other))
                    .map(|(_, op)| *op),
            );
        } else if is_blocking(stream) {
            after.extend(self.last.get(&LEGACY));
        }
        let mut before: BTreeSet<usize> = after
            .iter()
            .flat_map(|op| self.before[*op].clone())
            .collect();
        before.insert(id);
        self.before.push(before);
        self.last.insert(stream, id);
        id
    }

    /// Whether `word` may hold `value` after a wait for all operations in `complete`.
    fn may_be(&self, word: usize, value: u32, complete: &BTreeSet<usize>) -> bool {
        let writers = self.writers.get(&word).map_or(&[][..], Vec::as_slice);
        let over = |first: Option<usize>| {
            writers.iter().any(|later| {
                complete.contains(later)
                    && first
                        .is_none_or(|first| first != *later && self.before[*later].contains(&first))
            })
        };
        match usize::try_from(value).unwrap().checked_sub(1) {
            None => !over(None),
            Some(writer) => writers.contains(&writer) && !over(Some(writer)),
        }
    }

    /// Checks every word.
    fn check(&self, words: *const u32, complete: &BTreeSet<usize>) {
        for word in 0..WORDS {
            let seen = look(words.wrapping_add(word));
            assert!(self.may_be(word, seen, complete), "word {word} is {seen}");
        }
    }

    fn everything(&self) -> BTreeSet<usize> {
        (0..self.before.len()).collect()
    }

    /// The operations that are complete after a wait for `stream`.
    fn waited(&self, stream: usize) -> BTreeSet<usize> {
        let ends = self
            .last
            .iter()
            .filter(|(other, _)| **other == stream || (stream == LEGACY && is_blocking(**other)));
        ends.flat_map(|(_, op)| self.before[*op].clone()).collect()
    }
}

fn program(seed: u64) {
    start();
    let (mut dice, mut model) = (Dice(seed), Model::default());
    let words = pinned(WORDS);
    let streams = [
        CUstream::NULL,
        stream(0),
        stream(0),
        free_stream(),
        free_stream(),
    ];
    let events: Vec<CUevent> = (0..4).map(|_| event()).collect();
    for _ in 0..STEPS {
        let (at, mark, word) = (
            dice.below(streams.len()),
            dice.below(events.len()),
            dice.below(WORDS),
        );
        match dice.below(10) {
            0..=4 => {
                let id = model.op(at, None);
                model.writers.entry(word).or_default().push(id);
                let address = words.wrapping_add(word).addr() as u64;
                assert_eq!(
                    fill(streams[at], address, 1, u32::try_from(id).unwrap() + 1),
                    OK
                );
            }
            5..=6 => {
                let id = model.op(at, None);
                model.recorded.insert(mark, id);
                assert_eq!(cuEventRecord(events[mark], streams[at]), OK);
            }
            7..=8 => {
                let recorded = model.recorded.get(&mark).copied();
                if recorded.is_some() {
                    model.op(at, recorded);
                }
                assert_eq!(cuStreamWaitEvent(streams[at], events[mark], 0), OK);
            }
            _ => {
                assert_eq!(cuStreamSynchronize(streams[at]), OK);
                let complete = model.waited(at);
                model.check(words, &complete);
            }
        }
    }
    assert_eq!(cuCtxSynchronize(), OK);
    model.check(words, &model.everything());
}

#[test]
fn a_random_program_reads_only_values_that_its_order_allows() {
    for seed in 1..=24 {
        alone(
            "a_random_program_reads_only_values_that_its_order_allows",
            &format!("seed={seed}"),
            || {
                program(
                    std::env::var("SOFTGPU")
                        .unwrap()
                        .trim_start_matches("seed=")
                        .parse()
                        .unwrap(),
                );
            },
        );
    }
}

#[test]
fn concurrent_submitting_and_waiting_threads_all_make_progress() {
    alone(
        "concurrent_submitting_and_waiting_threads_all_make_progress",
        "",
        || {
            start();
            let words = pinned(8).addr();
            std::thread::scope(|scope| {
                for thread in 0..8_usize {
                    scope.spawn(move || {
                        start();
                        let (own, mark) = (stream(u32::from(thread % 2 == 0)), event());
                        for round in 1..=100_u32 {
                            let address = (words + thread * 4) as u64;
                            assert_eq!(fill(own, address, 1, round), OK);
                            assert_eq!(cuEventRecord(mark, own), OK);
                            match (thread + round as usize) % 4 {
                                0 => assert_eq!(cuStreamSynchronize(own), OK),
                                1 => assert_eq!(cuEventSynchronize(mark), OK),
                                2 => assert_eq!(cuCtxSynchronize(), OK),
                                _ => while cuEventQuery(mark) != OK {},
                            }
                            assert_eq!(
                                look(std::ptr::with_exposed_provenance(words + thread * 4)),
                                round
                            );
                        }
                    });
                }
            });
        },
    );
}

#[test]
fn a_full_stream_accepts_more_work_after_a_wait() {
    alone("a_full_stream_accepts_more_work_after_a_wait", "", || {
        start();
        let (word, stream, nothing) = (pinned(1), free_stream(), function("nothing"));
        for _ in 0..5_000 {
            assert_eq!(launch(nothing, stream, &mut []), OK);
        }
        assert_eq!(fill(stream, word.addr() as u64, 1, 7), OK);
        assert_eq!(cuStreamSynchronize(stream), OK);
        assert_eq!(look(word), 7);
    });
}

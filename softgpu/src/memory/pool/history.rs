//! Random histories of a pool's bookkeeping, checked against the reuse rules.

use super::model::{Model, STEP};

/// A small generator of random numbers. A failing run is repeated with its seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// An allocation, or a free that has not executed.
#[derive(Clone, Copy)]
struct Piece {
    stream: u64,
    start: u64,
    len: u64,
}

fn overlap(a: Piece, b: Piece) -> bool {
    a.start < b.start + b.len && b.start < a.start + a.len
}

/// The parts of `a` outside `b`.
fn without(a: Piece, b: Piece) -> impl Iterator<Item = Piece> {
    let before = Piece {
        len: b.start.clamp(a.start, a.start + a.len) - a.start,
        ..a
    };
    let end = (b.start + b.len).clamp(a.start, a.start + a.len);
    let after = Piece {
        start: end,
        len: a.start + a.len - end,
        ..a
    };
    let pieces = if overlap(a, b) {
        [before, after]
    } else {
        [a, Piece { len: 0, ..a }]
    };
    pieces.into_iter().filter(|piece| piece.len > 0)
}

/// Random work on three streams. Live allocations must never overlap, and a stream must never get
/// memory that another stream's pending free holds.
fn random_history(seed: u64) {
    let (mut draw, mut pool, mut next) = (Draw(seed), Model::default(), STEP);
    let (mut live, mut pending): (Vec<Piece>, Vec<(u64, Piece)>) = (Vec::new(), Vec::new());
    let mut held: Vec<(u64, Piece)> = Vec::new();
    for _ in 0..400 {
        match draw.below(5) {
            0..=1 => {
                let (stream, len) = (
                    draw.below(3),
                    (1 + draw.below(30)) * 512 * (1 + draw.below(2) * 4096),
                );
                let start = pool.take(stream, len).unwrap_or_else(|| {
                    let segment = len.next_multiple_of(STEP);
                    next += segment + STEP;
                    pool.grow(next - segment, segment, len)
                });
                let got = Piece { stream, start, len };
                assert!(
                    live.iter().all(|other| !overlap(got, *other)),
                    "seed {seed}: memory allocated twice"
                );
                let early =
                    |(_, other): &(u64, Piece)| other.stream != stream && overlap(got, *other);
                assert!(
                    !held.iter().any(early),
                    "seed {seed}: memory reused too early"
                );
                // Memory that the stream reused is no longer held by its earlier free.
                held = held
                    .into_iter()
                    .flat_map(|(ticket, other)| without(other, got).map(move |rest| (ticket, rest)))
                    .collect();
                live.push(got);
            }
            2..=3 if !live.is_empty() => {
                let gone =
                    live.swap_remove(usize::try_from(draw.below(live.len() as u64)).unwrap());
                // The free goes to the stream of the allocation or to another stream.
                let gone = Piece {
                    stream: draw.below(3),
                    ..gone
                };
                pending.push((pool.free_submitted(gone.stream, gone.start, gone.len), gone));
                held.extend(pending.last());
            }
            _ if !pending.is_empty() => {
                let which = usize::try_from(draw.below(pending.len() as u64)).unwrap();
                // Frees of one stream execute in order.
                let stream = pending[which].1.stream;
                let first = pending
                    .iter()
                    .position(|(_, piece)| piece.stream == stream)
                    .unwrap();
                let (ticket, _) = pending.remove(first);
                pool.free_executed(ticket);
                held.retain(|(other, _)| *other != ticket);
            }
            _ => {
                pool.synchronised();
                drop(pool.release(draw.below(4) * STEP));
            }
        }
        assert_eq!(
            pool.usage().used,
            live.iter().map(|piece| piece.len).sum::<u64>()
        );
    }
    for piece in live.drain(..) {
        pending.push((
            pool.free_submitted(piece.stream, piece.start, piece.len),
            piece,
        ));
    }
    for (ticket, _) in pending {
        pool.free_executed(ticket);
    }
    pool.synchronised();
    pool.release(0);
    assert_eq!(
        (pool.usage().used, pool.usage().reserved),
        (0, 0),
        "seed {seed}: memory is left"
    );
}

#[test]
fn no_history_allocates_memory_twice_or_too_early() {
    (0..300).for_each(random_history);
}

//! Leaves calls out as long as a case still fails.

use std::time::{Duration, Instant};

use super::{Case, Plan};

/// Runs that shrinking may take, and time.
const MOST: u32 = 200;
const PATIENCE: Duration = Duration::from_secs(90);
/// How often a case that does not fail each time is tried.
const TRIES: u32 = 4;

/// With as few calls as still fail. A case that does not fail each time is tried several times
/// before a call is taken to be needed.
pub(super) fn shrunk(case: &Case, fails: impl Fn(&Case) -> bool) -> Case {
    let always = (0..2).all(|_| fails(case));
    let tries = if always { 1 } else { TRIES };
    let (mut runs, end) = (0, Instant::now() + PATIENCE);
    let mut still = |case: &Case| {
        (0..tries).any(|_| {
            runs += 1;
            runs <= MOST && Instant::now() < end && fails(case)
        })
    };
    let mut least = case.clone();
    let mut part = least.plan.calls.len().div_ceil(2);
    while part > 0 {
        let mut from = 0;
        while from < least.plan.calls.len() {
            let fewer = without(&least.plan, from, part);
            let fewer = Case {
                plan: fewer,
                ..least.clone()
            };
            if !fewer.plan.calls.is_empty() && still(&fewer) {
                least = fewer;
            } else {
                from += part;
            }
        }
        part = if part == 1 { 0 } else { part.div_ceil(2) };
    }
    least
}

fn without(plan: &Plan, from: usize, part: usize) -> Plan {
    let mut calls = plan.calls.clone();
    calls.drain(from..(from + part).min(calls.len()));
    Plan {
        threads: plan.threads,
        calls,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::shrunk;
    use crate::referee::{Case, Mode, Plan};

    fn case(calls: usize) -> Case {
        let line = |index| format!("0.{index} alloc {index:016x}\n");
        let lines: String = (0..calls).map(line).collect();
        let plan: Plan = format!("threads 1\n{lines}").parse().expect("a plan");
        Case {
            mode: Mode::Cap,
            plan,
        }
    }

    fn left(case: &Case) -> Vec<usize> {
        case.plan.calls.iter().map(|call| call.index).collect()
    }

    #[test]
    fn just_the_calls_that_fail_together_are_left() {
        let needs = |case: &Case| [3, 77].iter().all(|index| left(case).contains(index));
        assert_eq!(left(&shrunk(&case(100), needs)), [3, 77]);
    }

    #[test]
    fn a_case_that_fails_now_and_then_loses_no_call_that_it_needs() {
        let turn = Cell::new(0);
        let fails = |case: &Case| {
            turn.set(turn.get() + 1);
            turn.get() % 3 == 1 && left(case).contains(&5)
        };
        assert!(left(&shrunk(&case(16), fails)).contains(&5));
    }
}

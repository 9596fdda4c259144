//! The hooked functions, one family a file, and the one table of them all.
//!
//! A row of a family names a hooked function and its handling; [`hooks`](crate::entry::hooks)
//! generates the rest. All code here is safe code.
#![deny(unsafe_code)]

mod allocate;
mod array;
mod array_refusal;
mod array_size;
mod binding;
mod context;
mod context_refusal;
mod context_turns;
mod graph;
mod graph_execs;
mod graph_held;
mod graph_size;
mod held;
mod info;
mod init;
mod ipc;
mod launch;
mod linear;
mod lookup;
mod managed;
mod module;
mod movable;
mod moves;
mod nvml;
mod nvml_lists;
mod pending;
mod plain;
mod pool;
mod pool_request;
mod refusal;
mod stream;
mod sync;
mod vmm;

use core::ffi::{CStr, c_void};

use crate::driver::real::{RANKS, Row};
use crate::entry::{Hook, Ours};
pub(crate) use crate::holdings::early;

/// Every family's rows. A new family is one more line here.
const FAMILIES: &[&[&[Hook]]] = &[
    array::HOOKS,
    binding::HOOKS,
    context::HOOKS,
    graph::HOOKS,
    held::HOOKS,
    info::HOOKS,
    init::HOOKS,
    ipc::HOOKS,
    launch::HOOKS,
    linear::HOOKS,
    lookup::HOOKS,
    managed::HOOKS,
    module::HOOKS,
    moves::HOOKS,
    nvml::HOOKS,
    pending::HOOKS,
    plain::HOOKS,
    pool::HOOKS,
    stream::HOOKS,
    sync::HOOKS,
    vmm::HOOKS,
];

const COUNT: usize = {
    let (mut count, mut family) = (0, 0);
    while family < FAMILIES.len() {
        let mut row = 0;
        while row < FAMILIES[family].len() {
            count += FAMILIES[family][row].len();
            row += 1;
        }
        family += 1;
    }
    count
};

/// Every hook, sorted by symbol.
#[allow(
    clippy::large_const_arrays,
    reason = "read at compile time only: its parts are the tables"
)]
const ALL: [Hook; COUNT] = sorted();

/// The functions that are hooked. Apart from the addresses of the hooks, because the dynamic linker
/// copies each page with an address in it for every program that it loads this library into.
static ROWS: [Row; COUNT] = {
    let mut rows = [ALL[0].row; COUNT];
    let mut at = 0;
    while at < COUNT {
        rows[at] = ALL[at].row;
        at += 1;
    }
    rows
};

/// Their hooks, in the same order.
static OURS: [Ours; COUNT] = {
    let mut ours = [ALL[0].ours; COUNT];
    let mut at = 0;
    while at < COUNT {
        ours[at] = ALL[at].ours;
        at += 1;
    }
    ours
};

/// A hooked function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// The function that is hooked.
    pub(crate) row: &'static Row,
    /// Our function of that name.
    pub(crate) ours: *const c_void,
}

/// The hook of exactly this symbol.
pub(crate) fn find(symbol: &CStr) -> Option<Found> {
    find_bytes(symbol.to_bytes())
}

/// The hook of exactly this symbol, given as text.
pub(crate) fn find_name(symbol: &str) -> Option<Found> {
    find_bytes(symbol.as_bytes())
}

fn find_bytes(symbol: &[u8]) -> Option<Found> {
    let at = ROWS.binary_search_by(|row| row.name().cmp(symbol)).ok()?;
    let (row, ours) = (ROWS.get(at)?, OURS.get(at)?.0);
    Some(Found { row, ours })
}

/// Sorted at compile time, so that a lookup neither allocates nor needs a start-up. The symbol
/// tables are in byte order, so a row's place in them is its rank, and no names are compared: to
/// compare them took a fifth of the crate's compilation.
const fn sorted() -> [Hook; COUNT] {
    let mut ranked: [Option<Hook>; RANKS] = [None; RANKS];
    let mut family = 0;
    while family < FAMILIES.len() {
        let mut row = 0;
        while row < FAMILIES[family].len() {
            let mut twin = 0;
            while twin < FAMILIES[family][row].len() {
                let hook = FAMILIES[family][row][twin];
                let before = ranked[hook.row.rank()].replace(hook);
                assert!(before.is_none(), "a symbol is hooked twice");
                twin += 1;
            }
            row += 1;
        }
        family += 1;
    }
    let mut all = [FAMILIES[0][0][0]; COUNT];
    let (mut filled, mut rank) = (0, 0);
    while rank < RANKS {
        if let Some(hook) = ranked[rank] {
            all[filled] = hook;
            filled += 1;
        }
        rank += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use gpushare_cuda_abi::symbols;

    use super::*;

    #[test]
    fn every_hook_is_found_by_its_name_and_appears_once() {
        for hook in &ALL {
            assert_eq!(
                find(hook.row.symbol()).map(|found| found.ours),
                Some(hook.ours.0),
                "{:?}",
                hook.row.symbol()
            );
        }
        for pair in ALL.windows(2) {
            assert!(
                pair[0].row.symbol() < pair[1].row.symbol(),
                "{:?} is hooked twice or out of order",
                pair[1].row.symbol()
            );
        }
    }

    #[test]
    fn the_hooks_are_the_rows_of_the_table_that_say_so() {
        let hooked: Vec<&str> = ALL
            .iter()
            .filter_map(|hook| hook.row.symbol().to_str().ok())
            .collect();
        let cuda = symbols::CUDA
            .iter()
            .filter(|row| row.hooked())
            .map(|row| row.name);
        let nvml = symbols::NVML
            .iter()
            .filter(|row| row.hooked())
            .map(|row| row.name);
        assert_eq!(hooked, cuda.chain(nvml).collect::<Vec<_>>());
    }

    #[test]
    fn the_hooks_that_pass_the_gate_are_the_rows_of_the_table_that_launch() {
        let gated = ALL.iter().filter(|hook| hook.gated);
        let gated: Vec<&str> = gated
            .filter_map(|hook| hook.row.symbol().to_str().ok())
            .collect();
        let launches = symbols::CUDA.iter();
        let launches = launches.filter(|row| row.gate == symbols::Gate::Launch);
        assert_eq!(gated, launches.map(|row| row.name).collect::<Vec<_>>());
    }

    #[test]
    fn a_name_that_is_not_hooked_is_not_found() {
        for name in [c"curl_easy_init", c"cu", c"", c"cuInit_v9", c"nvmlNothing"] {
            assert!(find(name).is_none(), "{name:?}");
        }
    }
}

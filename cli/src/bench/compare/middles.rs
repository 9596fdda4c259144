//! Of several pairs of runs the middle one, figure by figure.

use super::{Comparison, Pair, Tenant};

/// The median of each figure over several pairs of runs. Each pair has the comparisons of one
/// experiment by GPU.
pub(crate) fn middles(pairs: Vec<Vec<Comparison>>) -> Vec<Comparison> {
    let first = pairs.first().cloned().unwrap_or_default();
    let kept = first.into_iter().enumerate().map(|(at, mut kept)| {
        let runs: Vec<&Comparison> = pairs.iter().filter_map(|run| run.get(at)).collect();
        let middle = |figure: fn(&Comparison) -> Option<Pair>| {
            Pair::middle(runs.iter().filter_map(|run| figure(run)).collect())
        };
        kept.useful = middle(|run| Some(run.useful)).unwrap_or(kept.useful);
        kept.used = middle(|run| run.used);
        kept.rates = middle(|run| run.rates);
        let changes = runs.iter().filter_map(|run| run.mode_changes_a_minute);
        kept.mode_changes_a_minute = middle_number(changes.collect());
        // Of the worst pair: the figures kept may be that pair's.
        let stolen = runs.iter().filter_map(|run| run.stolen);
        kept.stolen = stolen.max_by(|one, other| one.most().total_cmp(&other.most()));
        for (place, tenant) in kept.tenants.iter_mut().enumerate() {
            let all: Vec<&Tenant> = runs
                .iter()
                .filter_map(|run| run.tenants.get(place))
                .collect();
            keep(tenant, &all);
        }
        kept
    });
    kept.collect()
}

/// Keeps the median of each of a tenant's figures. `all`: the same tenant in each pair.
fn keep(tenant: &mut Tenant, all: &[&Tenant]) {
    let middle = |figure: fn(&Tenant) -> Option<Pair>| {
        Pair::middle(all.iter().filter_map(|run| figure(run)).collect())
    };
    let errors = all.iter().filter_map(|run| run.error_pp);
    tenant.error_pp = middle_number(errors.collect());
    tenant.device = middle(|run| Some(run.device)).unwrap_or(tenant.device);
    tenant.cores = middle(|run| Some(run.cores)).unwrap_or(tenant.cores);
    tenant.missed = middle(|run| run.missed);
    tenant.copied = middle(|run| run.copied);
    tenant.newcomer = middle(|run| run.newcomer);
    tenant.newcomer_second = middle(|run| run.newcomer_second);
    // Either median may be of the pair with the fewest.
    let visits = all.iter().filter_map(|run| run.visits);
    tenant.visits = visits.reduce(Pair::smaller);
    // Percentiles of several distributions, side by side, would be those of none.
    let waits = all.iter().filter_map(|run| Some((run.wait_p99?, *run)));
    if let Some((_, run)) = middle_by(waits.collect(), |(wait, _)| *wait) {
        tenant.wait_p50 = run.wait_p50;
        tenant.wait_p99 = run.wait_p99;
        tenant.wait_p999 = run.wait_p999;
        tenant.waits = run.waits;
        tenant.launching_p50 = run.launching_p50;
        tenant.in_line = run.in_line;
    }
}

impl Pair {
    /// The figure with the median ratio, see [`middle_by`]; `None` for an empty list.
    pub(super) fn middle(pairs: Vec<Self>) -> Option<Self> {
        middle_by(pairs, |pair| *pair)
    }

    /// Of each side the smaller one.
    fn smaller(self, other: Self) -> Self {
        Self {
            bare: self.bare.min(other.bare),
            shared: self.shared.min(other.shared),
        }
    }
}

/// The one whose figure has the median ratio; for an even number the lower one. From nothing to
/// something is more than any ratio; equal ratios go by the figure with gpushare.
fn middle_by<T>(mut all: Vec<T>, figure: impl Fn(&T) -> Pair) -> Option<T> {
    let new = |pair: Pair| {
        if pair.shared > 0.0 {
            f64::INFINITY
        } else {
            1.0
        }
    };
    let key = |pair: Pair| pair.ratio().unwrap_or_else(|| new(pair));
    all.sort_by(|one, other| {
        let (one, other) = (figure(one), figure(other));
        let by_ratio = key(one).total_cmp(&key(other));
        by_ratio.then(one.shared.total_cmp(&other.shared))
    });
    let at = all.len().checked_sub(1)? / 2;
    Some(all.swap_remove(at))
}

/// The number of median size; for an even number of them the larger one. `None` for an empty list.
pub(super) fn middle_number(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(|one, other| one.abs().total_cmp(&other.abs()));
    numbers.get(numbers.len() / 2).copied()
}

//! The part of a measurement that is whole cycles. A stay can take a tenth of the measurement: a
//! window that ends within one would give one tenant of a pair more than the other.

/// What is counted of a measurement: from one departure of a tenant to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    /// On the clock of the measurement, in nanoseconds.
    pub(super) window: (u64, u64),
    /// 0: the tenant left once at most, and all of the measurement is counted.
    pub(super) cycles: usize,
}

impl Counted {
    /// Of the measurement `all`, in which a tenant began to leave at these moments.
    pub(super) fn of(all: (u64, u64), departures: &[u64]) -> Self {
        match departures {
            [first, .., last] => Self {
                window: (*first, *last),
                cycles: departures.len() - 1,
            },
            _ => Self {
                window: all,
                cycles: 0,
            },
        }
    }

    /// In nanoseconds.
    pub(super) fn length(self) -> u64 {
        self.window.1.saturating_sub(self.window.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_the_first_and_the_last_departure_counts() {
        let counted = Counted::of((100, 900), &[150, 400, 650]);
        assert_eq!((counted.window, counted.cycles), ((150, 650), 2));
        assert_eq!(counted.length(), 500);
    }

    #[test]
    fn without_a_whole_cycle_all_of_it_counts() {
        for departures in [&[][..], &[150][..]] {
            let counted = Counted::of((100, 900), departures);
            assert_eq!((counted.window, counted.cycles), ((100, 900), 0));
        }
    }
}

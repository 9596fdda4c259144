//! The pids under which NVML may list a tenant's processes, and the pids under which a program of
//! the tenant knows them.
//!
//! Some drivers report to each caller the pids of the caller's own pid namespace, others report the
//! machine's pids to every caller. So a list is taken to use the machine's pids once a process of
//! the tenant appears in it under such a pid. Each entry of the tenant is then shown by the pid
//! that the caller knows. A process in a namespace that the caller cannot see has no such pid, and
//! is left out.

use super::process;

/// One process of the tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Its pid in its own namespace.
    pub(crate) pid: u32,
    /// Inode of that namespace, 0 where it is not known: then it is taken for the caller's.
    pub(crate) namespace: u64,
    /// Its pid on the machine, or in a namespace further out than its own; 0 where it is not known.
    pub(crate) outer: u32,
}

/// The tenant's processes as one caller knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Members {
    /// The caller's pid for each, and the outer one, where there are such.
    pids: Vec<(Option<u32>, Option<u32>)>,
}

impl Members {
    /// As the calling process knows them.
    pub(crate) fn of(known: impl IntoIterator<Item = Known>) -> Self {
        Self::seen_from(process::namespace(), process::in_first_namespace(), known)
    }

    fn seen_from(here: u64, is_first: bool, known: impl IntoIterator<Item = Known>) -> Self {
        let seen = |known: Known| {
            let outer = (known.outer != 0).then_some(known.outer);
            let is_here = known.namespace == here || known.namespace == 0;
            // The machine's pids are those of the first namespace.
            let here = if is_here {
                Some(known.pid)
            } else {
                outer.filter(|_| is_first)
            };
            (here, outer.filter(|_| !is_first))
        };
        Self {
            pids: known.into_iter().map(seen).collect(),
        }
    }

    /// For each of the pids that NVML lists: the pid to show, `None` for a process that is not to
    /// be shown.
    pub(crate) fn shown(&self, listed: &[u32]) -> Vec<Option<u32>> {
        let is_outer = |pid: &u32| self.pids.iter().any(|(_, outer)| *outer == Some(*pid));
        let by_outer = listed.iter().any(is_outer);
        let show = |listed: &u32| {
            let is_it = |(here, outer): &&(Option<u32>, Option<u32>)| {
                *(if by_outer { outer } else { here }) == Some(*listed)
            };
            self.pids.iter().find(is_it).and_then(|(here, _)| *here)
        };
        listed.iter().map(show).collect()
    }

    /// The pid in this list of NVML's that is shown as `pid`, if one is.
    pub(crate) fn listed(&self, pid: u32, all: &[u32]) -> Option<u32> {
        let mut listed = all.iter().zip(self.shown(all));
        let (listed, _) = listed.find(|(_, shown)| *shown == Some(pid))?;
        Some(*listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: u64 = 4_026_532_500;
    const ELSEWHERE: u64 = 4_026_532_501;

    fn known(pid: u32, namespace: u64, outer: u32) -> Known {
        Known {
            pid,
            namespace,
            outer,
        }
    }

    #[test]
    fn a_list_by_the_machines_pids_is_shown_by_the_callers() {
        let members = Members::seen_from(HERE, false, [known(7, HERE, 8121), known(9, HERE, 8122)]);
        assert_eq!(
            members.shown(&[8122, 7, 8121, 4000]),
            [Some(9), None, Some(7), None],
            "7 is a stranger's there"
        );
        let all = [8122, 7, 8121, 4000];
        let listed = |pid| members.listed(pid, &all);
        assert_eq!([7, 9].map(listed), [Some(8121), Some(8122)]);
        assert_eq!([8121, 4000, 5].map(listed), [None; 3]);
    }

    #[test]
    fn a_list_by_the_callers_own_pids_is_shown_as_it_is() {
        let members = Members::seen_from(HERE, false, [known(7, HERE, 8121), known(9, 0, 0)]);
        assert_eq!(members.shown(&[9, 7, 4000]), [Some(9), Some(7), None]);
        assert_eq!(members.shown(&[]), []);
        let listed = |pid| members.listed(pid, &[9, 4000]);
        assert_eq!([9, 7, 4000].map(listed), [Some(9), None, None]);
    }

    #[test]
    fn a_process_of_another_namespace_has_no_pid_here_but_on_the_machine() {
        let nested = [known(7, ELSEWHERE, 8121), known(9, HERE, 8122)];
        let here = Members::seen_from(HERE, false, nested);
        assert_eq!(here.shown(&[8121, 8122]), [None, Some(9)]);
        assert_eq!(here.shown(&[7]), [None], "that is another 7");
        let machine = Members::seen_from(HERE, true, nested);
        assert_eq!(machine.shown(&[8121, 9]), [Some(8121), Some(9)]);
    }
}

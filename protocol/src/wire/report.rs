//! Reports about turns as requests: four variants of one shape.

use super::message::Request;
use crate::report::Report;

impl Request {
    /// A report about the turn of `epoch` on the device with this index.
    #[must_use]
    pub fn reporting(report: Report, device_index: u8, epoch: u64) -> Self {
        match report {
            Report::Wanted => Self::Wanted {
                device_index,
                epoch,
            },
            Report::Drained => Self::Drained {
                device_index,
                epoch,
            },
            Report::Idle => Self::Idle {
                device_index,
                epoch,
            },
            Report::Busy => Self::Busy {
                device_index,
                epoch,
            },
        }
    }

    /// What it reports, with the device's index and the epoch. `None`: it is no report.
    #[must_use]
    pub fn report(&self) -> Option<(Report, u8, u64)> {
        let (report, device_index, epoch) = match self {
            Self::Wanted {
                device_index,
                epoch,
            } => (Report::Wanted, device_index, epoch),
            Self::Drained {
                device_index,
                epoch,
            } => (Report::Drained, device_index, epoch),
            Self::Idle {
                device_index,
                epoch,
            } => (Report::Idle, device_index, epoch),
            Self::Busy {
                device_index,
                epoch,
            } => (Report::Busy, device_index, epoch),
            _ => return None,
        };
        Some((report, *device_index, *epoch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_comes_back_from_its_request_and_none_from_others() {
        let all = [Report::Wanted, Report::Drained, Report::Idle, Report::Busy];
        for report in all {
            let told = Request::reporting(report, 3, 77);
            assert_eq!(told.report(), Some((report, 3, 77)));
        }
        let open = Request::Open { device_index: 3 };
        assert_eq!(open.report(), None);
    }
}

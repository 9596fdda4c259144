//! The parsed limits of an environment.

use super::amounts::Amounts;
use super::compute;
use super::error::LimitError;
use super::maxima::Maxima;
use super::policy::Policy;
use std::path::PathBuf;

/// The device's total memory that frameworks see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// The limit, or the device's own total where there is none.
    #[default]
    Limit,
    /// The request; the limit where a device has no request.
    Request,
}

/// The owners of variables, highest precedence first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Gpushare,
    Hami,
    Toolkit,
    Mps,
}

const OWNERS: usize = 4;

/// The limits of one environment, validated as far as possible without knowing the devices.
///
/// `Display` is stable, independent of spelling and of the order of variables: two environments ask
/// for the same limits if and only if it is equal, but that a default beside a tenant's own
/// words is named as one. It is what "an equal name joins, differing limits are refused" compares.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    pub(super) memory: Amounts<OWNERS>,
    pub(super) time: Amounts<{ compute::OWNERS }>,
    pub(super) view: View,
    pub(super) disabled: bool,
    pub(super) policy: Policy,
    pub(super) socket: Option<PathBuf>,
    /// The most its node allows, where that is known.
    pub(super) maxima: Maxima,
}

impl Limits {
    /// These, if they do not contradict themselves.
    pub(super) fn checked(mut self) -> Result<Self, LimitError> {
        self.policy.settle()?;
        self.memory.check()?;
        self.time.check()?;
        Ok(self)
    }

    /// Whether any device has a limit or a request of memory.
    pub fn any(&self) -> bool {
        self.memory.any()
    }

    /// Whether any device has a limit of memory, in whatever variable.
    pub fn limits_memory(&self) -> bool {
        self.memory.layers().any(|layer| !layer.limit.is_empty())
    }

    /// Refuses the view of a request where no device can have one.
    pub(super) fn check_view(&self) -> Result<(), LimitError> {
        if self.view == View::Request && !self.any() {
            return Err(LimitError::new(
                "GPUSHARE_MEM_VIEW",
                "request",
                "there is no request to show",
                "request together with GPUSHARE_MEM_REQUEST or GPUSHARE_MEM_LIMIT, or limit",
            ));
        }
        Ok(())
    }
}

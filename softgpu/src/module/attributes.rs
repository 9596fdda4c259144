//! Attributes of functions and kernels: reading and setting them.

use std::collections::BTreeMap;

use gpushare_cuda_abi::cuda::{CUfunction_attribute, CUresult};

use crate::error::Result;

/// Shared memory that a block may use by default (bytes), on every architecture.
pub(super) const DEFAULT_SHARED: u32 = 48 << 10;
/// Shared memory that a block may use after opting in (bytes): compute capability 9.0, CUDA C++
/// programming guide, table of technical specifications.
pub(super) const MAX_SHARED: u32 = 227 << 10;

/// The attributes that were set, or that the image says. All other attributes have a modelled
/// kernel's values.
#[derive(Debug, Clone, Default)]
pub struct Attributes(BTreeMap<u32, i32>);

impl Attributes {
    /// Those that an image gives a function.
    pub(super) fn of_image(told: BTreeMap<u32, i32>) -> Self {
        Self(told)
    }

    /// The value of an attribute.
    ///
    /// # Errors
    /// `INVALID_VALUE` for an attribute that does not exist.
    pub fn get(&self, attribute: CUfunction_attribute) -> Result<i32> {
        use CUfunction_attribute as A;
        if let Some(set) = self.0.get(&attribute.0) {
            return Ok(*set);
        }
        Ok(match attribute {
            A::MAX_THREADS_PER_BLOCK => 1024,
            A::NUM_REGS => 32,
            A::PTX_VERSION | A::BINARY_VERSION => 90,
            A::MAX_DYNAMIC_SHARED_SIZE_BYTES => 48 << 10,
            A::PREFERRED_SHARED_MEMORY_CARVEOUT => -1,
            other if other < A::MAX => 0,
            _ => return Err(CUresult::INVALID_VALUE),
        })
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// `INVALID_VALUE` for an attribute that cannot be set, or a value out of its range.
    pub fn set(&mut self, attribute: CUfunction_attribute, value: i32) -> Result {
        use CUfunction_attribute as A;
        let legal = match attribute {
            A::MAX_DYNAMIC_SHARED_SIZE_BYTES => {
                u32::try_from(value).is_ok_and(|bytes| bytes <= MAX_SHARED)
            }
            A::PREFERRED_SHARED_MEMORY_CARVEOUT => (-1..=100).contains(&value),
            A::REQUIRED_CLUSTER_WIDTH | A::REQUIRED_CLUSTER_HEIGHT | A::REQUIRED_CLUSTER_DEPTH => {
                (0..=16).contains(&value)
            }
            A::NON_PORTABLE_CLUSTER_SIZE_ALLOWED => (0..=1).contains(&value),
            A::CLUSTER_SCHEDULING_POLICY_PREFERENCE => (0..=2).contains(&value),
            _ => false,
        };
        if !legal {
            return Err(CUresult::INVALID_VALUE);
        }
        self.0.insert(attribute.0, value);
        Ok(())
    }

    /// Threads that a block of a launch may have.
    pub fn max_threads(&self) -> u32 {
        let most = self.get(CUfunction_attribute::MAX_THREADS_PER_BLOCK);
        most.ok()
            .and_then(|most| u32::try_from(most).ok())
            .unwrap_or(0)
    }

    /// Dynamic shared memory that a launch may request (bytes).
    pub fn dynamic_shared(&self) -> u32 {
        let set = self
            .get(CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES)
            .unwrap_or(0);
        u32::try_from(set).unwrap_or(DEFAULT_SHARED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settable_attributes_are_set_and_only_in_range() {
        let mut attributes = Attributes::default();
        assert_eq!(
            attributes.set(CUfunction_attribute::NUM_REGS, 8),
            Err(CUresult::INVALID_VALUE)
        );
        let shared = CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;
        assert_eq!(
            attributes.set(shared, (228 << 10) + 1),
            Err(CUresult::INVALID_VALUE)
        );
        assert_eq!(attributes.set(shared, 100 << 10), Ok(()));
        assert_eq!(attributes.get(shared), Ok(100 << 10));
        assert_eq!(
            attributes.get(CUfunction_attribute(99)),
            Err(CUresult::INVALID_VALUE)
        );
    }
}

//! Variables of a module: memory of its context, taken when a variable is first asked for or a
//! function first launched (since CUDA 12.2 a driver loads data as late as code).

use std::collections::HashMap;
use std::sync::Arc;

use gpushare_cuda_abi::cuda::CUresult;

use super::kernels::access::DeviceSlice;
use crate::context::Context;
use crate::error::Result;
use crate::memory::{ModuleMemory, still};
use crate::va::Access;

/// A variable that an image declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Variable {
    /// Its name as the image has it.
    pub(super) name: String,
    /// Bytes.
    pub(super) size: usize,
    /// Its alignment (a power of two).
    pub(super) align: usize,
    /// The first of its initial bytes; the rest is 0.
    pub(super) initial: Vec<u8>,
    /// Addresses inside the initial bytes.
    pub(super) patches: Vec<Patch>,
}

/// The address of a variable as an initial value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Patch {
    /// Where its eight bytes are.
    pub(super) offset: usize,
    /// The variable, and what is added to its address.
    pub(super) name: String,
    pub(super) addend: i64,
}

/// The variables of a module in memory.
#[derive(Debug)]
pub(super) struct Variables {
    places: HashMap<String, (u64, u64)>,
    _memory: Option<ModuleMemory>,
}

impl Variables {
    /// Takes memory for the variables and writes their initial values.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if the device lacks the memory.
    pub(super) fn load(context: &Arc<Context>, declared: &[Variable]) -> Result<Self> {
        let mut end = 0_u64;
        let mut offsets = HashMap::new();
        for variable in declared.iter().filter(|variable| variable.size > 0) {
            let lacking = CUresult::OUT_OF_MEMORY;
            let offset = end
                .checked_next_multiple_of(variable.align as u64)
                .ok_or(lacking)?;
            end = offset.checked_add(variable.size as u64).ok_or(lacking)?;
            offsets.insert(variable.name.clone(), (offset, variable.size as u64));
        }
        if end == 0 {
            return Ok(Self {
                places: HashMap::new(),
                _memory: None,
            });
        }
        let parts: Vec<(u64, u64)> = offsets.values().copied().collect();
        let memory = ModuleMemory::take(context, end, &parts)?;
        let mut places = offsets;
        for (offset, _) in places.values_mut() {
            *offset += memory.base();
        }
        for variable in declared {
            if let Some((base, size)) = places.get(&variable.name) {
                let _still = still();
                let bytes = DeviceSlice::<u8>::new(context, *base, *size, Access::Write)?;
                let mut initial = variable.initial.clone();
                for patch in &variable.patches {
                    let target = places.get(&patch.name).map_or(0, |(base, _)| *base);
                    let value = target.wrapping_add_signed(patch.addend).to_le_bytes();
                    if let Some(into) = initial.get_mut(patch.offset..patch.offset + value.len()) {
                        into.copy_from_slice(&value);
                    }
                }
                for at in 0..bytes.len() {
                    bytes.set(at, initial.get(at).copied().unwrap_or(0));
                }
            }
        }
        Ok(Self {
            places,
            _memory: Some(memory),
        })
    }

    /// Address and size of a variable.
    pub(super) fn place(&self, name: &str) -> Option<(u64, u64)> {
        self.places.get(name).copied()
    }
}

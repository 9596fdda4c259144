//! Memory of a module's variables: pages of its context, one allocation for each variable.

use std::sync::Arc;

use super::phys::Region;
use super::table::{self, Record, What};
use crate::Result;
use crate::context::Context;
use crate::va::Range;
use crate::world::Kind;

/// The variables of one module; their addresses end when it is dropped.
#[derive(Debug)]
pub(crate) struct ModuleMemory {
    region: Arc<Region>,
    /// Address and number of each allocation.
    entered: Vec<(u64, u64)>,
}

impl ModuleMemory {
    /// Takes `size` bytes, of which `parts` (offset and length, disjoint) become accessible.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if the device lacks the memory.
    pub(crate) fn take(context: &Arc<Context>, size: u64, parts: &[(u64, u64)]) -> Result<Self> {
        let device = context.device();
        let mut memory = Self {
            region: Arc::new(Region::new(device, Kind::Module, size)?),
            entered: Vec::new(),
        };
        let ordinal = device.ordinal();
        for (offset, len) in parts {
            let (base, id) = (memory.base() + offset, table::fresh_id());
            let record = Record {
                size: *len,
                id,
                device: ordinal,
                context: context.id(),
                what: What::Module(Arc::clone(&memory.region)),
            };
            table::insert(base, record, Range::on_device(ordinal, *len))?;
            memory.entered.push((base, id));
        }
        Ok(memory)
    }

    /// The first address.
    pub(crate) fn base(&self) -> u64 {
        self.region.base()
    }
}

impl Drop for ModuleMemory {
    fn drop(&mut self) {
        for (base, id) in &self.entered {
            // The context's end has removed it before.
            table::remove_if(*base, |record| record.id == *id);
        }
    }
}

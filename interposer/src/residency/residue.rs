//! The memory of this process that stays on a device, by the reason for which it cannot move.

use gpushare_protocol::wire::Residue;

use super::memory::blocks;
use crate::driver::device::DeviceKey;
use crate::holdings::arena::Arena;
use crate::holdings::objects::physical::physical;
use crate::holdings::objects::{ARRAYS, MIPMAPS};
use crate::holdings::table::{self, Kind};
use crate::holdings::{graph_memory, pools};

/// The charges on a device for memory that cannot move.
pub(super) fn of(device: DeviceKey) -> Residue {
    let mut residue = Residue::default();
    table::each(&mut |record| {
        if record.device() != device {
            return;
        }
        let reason = match record.kind() {
            _ if record.is_exported() => &mut residue.shared,
            Kind::Linear => &mut residue.small,
            Kind::Pitched => &mut residue.arrays,
            Kind::Managed => &mut residue.managed,
            // Charged to their pools and graphs, to their exporters; or it can move.
            Kind::PoolMemory | Kind::GraphMemory | Kind::Imported | Kind::Movable => return,
        };
        *reason += record.bytes();
    });
    for object in ARRAYS.all().into_iter().chain(MIPMAPS.all()) {
        if object.device == device {
            residue.arrays += object.units.bytes();
        }
    }
    residue.pools = arenas(device);
    let handles = physical().charges(device);
    let movable = blocks().owns.movable(device);
    residue.handles = handles.own.saturating_sub(movable);
    residue.shared += handles.shared;
    residue
}

fn arenas(device: DeviceKey) -> u64 {
    let bytes = core::cell::Cell::new(0);
    let add = |arena: &dyn Arena| {
        if arena.device() == device {
            bytes.set(bytes.get() + arena.held().bytes());
        }
    };
    pools::each(&add);
    graph_memory::each(&add);
    bytes.get()
}

//! The program's memory: records of addresses and handles, pools, pending frees.

pub(crate) mod arena;
pub(crate) mod early;
pub(crate) mod events;
pub(crate) mod frees;
pub(crate) mod graph_memory;
pub(crate) mod launches;
pub(crate) mod objects;
pub(crate) mod overhead;
pub(crate) mod pending_frees;
pub(crate) mod pool_room;
pub(crate) mod pools;
pub(crate) mod reclaim;
pub(crate) mod returning;
pub(crate) mod table;
mod told;
pub(crate) mod torch;

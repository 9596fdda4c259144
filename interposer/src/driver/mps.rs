//! Whether this process is a client of NVIDIA's Multi-Process Service. Then its gates stay open:
//! MPS shares its compute. Memory is accounted as ever.

use std::ffi::OsString;

use gpushare_cuda_abi::cuda::CUdevice_attribute;
use gpushare_protocol::mps::{self, ACTIVE_THREADS, Facts, PIPE_DIRECTORY};

use crate::driver::calls;
use crate::guest::fork::ForkLocal;

/// Whether the process is an MPS client, and the share of the multiprocessors in its environment.
/// Looked up once, after the driver has started: a client stays one for life, and later changes of
/// the environment are the program's own.
static CLIENT: ForkLocal<(bool, Option<OsString>)> = ForkLocal::new();

fn client() -> &'static (bool, Option<OsString>) {
    CLIENT.get_or(|| {
        let folder = std::env::var_os(PIPE_DIRECTORY);
        let is_client = mps::is_client(Facts {
            probed: mps::probe(folder.as_deref()),
            driver: drivers_word(),
        });
        if is_client {
            tracing::info!("an MPS client: its compute is shared by MPS, without turns");
        }
        (is_client, std::env::var_os(ACTIVE_THREADS))
    })
}

/// Whether it is one.
pub(crate) fn is_client() -> bool {
    client().0
}

/// Whether its tenant's cap, in thousandths, is kept by the MPS server.
pub(crate) fn keeps(cap: u64) -> bool {
    let (is_client, says) = client();
    *is_client && mps::keeps(cap, says.as_deref())
}

/// The driver's answer for its first device; `None` where it does not know the attribute.
fn drivers_word() -> Option<bool> {
    let device = calls::device(0).ok()?;
    let enabled = calls::device_attribute(CUdevice_attribute::MPS_ENABLED, device).ok()?;
    Some(enabled != 0)
}

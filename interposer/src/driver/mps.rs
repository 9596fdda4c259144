//! Whether this process is a client of NVIDIA's Multi-Process Service. Then its gates stay open:
//! MPS shares its compute. Memory is accounted as ever.

use std::ffi::OsString;

use gpushare_cuda_abi::cuda::CUdevice_attribute;
use gpushare_protocol::mps::{self, ACTIVE_THREADS, Facts, PIPE_DIRECTORY};

use crate::driver::calls;
use crate::guest::fork::ForkLocal;

/// What is known of the process. Looked up once, after the driver has started: a client stays one
/// for life, and later changes of the environment are the program's own.
#[derive(Debug)]
struct Client {
    /// It is an MPS client.
    is: bool,
    /// The driver itself says so. Where it does not know the question, any process that listens in
    /// the folder makes the program one, and keeps nothing.
    by_driver: bool,
    /// The share of the multiprocessors in its environment.
    says: Option<OsString>,
}

static CLIENT: ForkLocal<Client> = ForkLocal::new();

fn client() -> &'static Client {
    CLIENT.get_or(|| {
        let folder = std::env::var_os(PIPE_DIRECTORY);
        let driver = drivers_word();
        let is = mps::is_client(Facts {
            probed: mps::probe(folder.as_deref()),
            driver,
        });
        if is {
            tracing::info!("an MPS client: its compute is shared by MPS, without turns");
        }
        Client {
            is,
            by_driver: driver == Some(true),
            says: std::env::var_os(ACTIVE_THREADS),
        }
    })
}

/// Whether it is one.
pub(crate) fn is_client() -> bool {
    client().is
}

/// Whether its tenant's cap, in thousandths, is kept by the MPS server.
pub(crate) fn keeps(cap: u64) -> bool {
    let client = client();
    client.by_driver && mps::keeps(cap, client.says.as_deref())
}

/// The driver's answer for its first device; `None` where it does not know the attribute.
fn drivers_word() -> Option<bool> {
    let device = calls::device(0).ok()?;
    let enabled = calls::device_attribute(CUdevice_attribute::MPS_ENABLED, device).ok()?;
    Some(enabled != 0)
}

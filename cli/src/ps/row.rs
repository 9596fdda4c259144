//! A tenant on a device as `ps` knows it, and as `--json` prints it: `docs/schema/ps.json`.

use serde::Serialize;
use serde_json::Value;

/// The version of a row's form.
pub(super) const SCHEMA: u32 = 1;

/// One tenant on one device. Amounts in bytes.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) schema: u32,
    pub(crate) name: String,
    /// The device, as `CUDA_VISIBLE_DEVICES` names it, and its place among its daemon's devices.
    pub(crate) device: String,
    pub(crate) gpu: Option<u32>,
    /// The owner's user id; none of a tenant of the machine.
    pub(crate) owner: Option<u32>,
    /// Whether a daemon keeps it; else the library alone does.
    pub(crate) daemon: bool,
    /// How long and why it waits for its admission.
    pub(crate) queued: Option<Queued>,
    /// Milliseconds since its admission.
    pub(crate) age_ms: Option<u64>,
    pub(crate) request: u64,
    /// None where nothing limits it.
    pub(crate) limit: Option<u64>,
    pub(crate) grant: u64,
    pub(crate) charged: u64,
    pub(crate) overhead: u64,
    pub(crate) limbo: u64,
    pub(crate) time: Option<Value>,
    pub(crate) sharing: Option<Value>,
    pub(crate) gang: Option<String>,
    /// The pod whose container it is.
    pub(crate) pod: Option<Pod>,
    /// Where its memory is, if that can leave the device.
    pub(crate) residency: Option<Value>,
    pub(crate) ends: Option<Ends>,
    pub(crate) processes: Vec<Process>,
    /// Its residency for a person, a line each.
    #[serde(skip)]
    pub(crate) residency_text: Vec<String>,
    /// Whether it holds, waits for or had something of the device, or has no daemon.
    #[serde(skip)]
    pub(crate) used: bool,
    /// How many more devices it may use that no row is shown of.
    #[serde(skip)]
    pub(crate) more: usize,
    /// Its time for a person.
    #[serde(skip)]
    pub(crate) time_text: String,
}

/// See [`Row::queued`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Queued {
    pub(crate) for_ms: u64,
    pub(crate) why: String,
}

/// A pod, as the engine of its container says it; a part that it does not say is empty.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Pod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) container: String,
    /// For a person.
    #[serde(skip)]
    pub(crate) text: String,
}

/// When it will be ended, or of one that was told to end, when it is killed, and by what.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Ends {
    pub(crate) in_ms: u64,
    pub(crate) by: &'static str,
    pub(crate) told: bool,
}

/// A process of a tenant.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) charged: u64,
    /// Bytes of its contexts, as the process itself measured them; `None` where it has not.
    pub(crate) overhead: Option<u64>,
    /// `running`, `idle`, `waiting`, `unknown`.
    pub(crate) state: &'static str,
    pub(crate) waits_for: Option<u64>,
    pub(crate) for_ms: Option<u64>,
}

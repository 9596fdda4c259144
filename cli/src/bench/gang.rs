//! A worker whose kernels wait on the device for their peers on the next GPU: one thread for each
//! of its GPUs. The peers are its own threads or, for a tenant with a job, the other tenants of
//! that job.

use super::pact::Pact;
use super::tenant::Tenant;
use super::worker::{Moments, Worker};
use super::{log::Log, tenant::ns};
use crate::args::BenchWorker;
use gpushare_sys::cuda::{Board, Gpu};
use std::fs::OpenOptions;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Messages of a gang's threads.
enum Said {
    Ready,
    Done(Log),
}

/// All threads of a gang. If one fails, the others' kernels have no peers; the process then ends
/// with all of them.
pub(crate) struct Gang {
    said: Receiver<Result<Said, String>>,
    orders: Vec<Sender<Moments>>,
}

/// State shared by all threads of a gang.
#[derive(Clone)]
struct Common {
    tenant: Tenant,
    board: Board,
    /// This worker's first place on the board, and the number of places.
    places: (usize, usize),
    pact: Arc<Pact>,
    say: Sender<Result<Said, String>>,
}

impl Gang {
    /// Starts the threads. Returns when all are ready.
    pub(crate) fn start(tenant: &Tenant, arguments: &BenchWorker) -> Result<Self, String> {
        let (say, said) = channel();
        let (board, places) = match (&arguments.board, arguments.place) {
            (Some(path), Some(places)) => {
                let file = OpenOptions::new().read(true).write(true).open(path);
                let file = file.map_err(|error| format!("{}: {error}", path.display()))?;
                (Board::shared(&file)?, places)
            }
            _ => (Board::default(), (0, tenant.gpus.len())),
        };
        let common = Common {
            tenant: tenant.clone(),
            board,
            places,
            pact: Arc::new(Pact::new(tenant.gpus.len())),
            say,
        };
        let mut orders = Vec::new();
        for at in 0..tenant.gpus.len() {
            let (order, told) = channel();
            let common = common.clone();
            let ordinal = arguments.device + u32::try_from(at).unwrap_or(u32::MAX);
            // The thread has its own name, because gpushare's threads are recognised by theirs.
            let named = thread::Builder::new().name(format!("bench {at}"));
            named
                .spawn(move || {
                    let done = common.work(at, ordinal, &told);
                    let _ = common.say.send(done.map(Said::Done));
                })
                .map_err(|error| format!("no thread: {error}"))?;
            orders.push(order);
        }
        let gang = Self { said, orders };
        for _ in &gang.orders {
            match gang.next()? {
                Said::Ready => {}
                Said::Done(_) => return Err("a thread ended early".to_owned()),
            }
        }
        Ok(gang)
    }

    /// Lets all threads work; returns their logs, by GPU.
    pub(crate) fn work(self, moments: Moments) -> Result<Vec<Log>, String> {
        for order in &self.orders {
            let _ = order.send(moments);
        }
        let mut logs = Vec::new();
        while logs.len() < self.orders.len() {
            if let Said::Done(log) = self.next()? {
                logs.push(log);
            }
        }
        logs.sort_by_key(|log| log.gpu);
        // Processor times are of the whole process, so only the first log reports them.
        for log in logs.iter_mut().skip(1) {
            (log.cpu_ns, log.own_cpu_ns) = (0, 0);
        }
        Ok(logs)
    }

    fn next(&self) -> Result<Said, String> {
        self.said.recv().map_err(|error| error.to_string())?
    }
}

impl Common {
    fn work(&self, at: usize, ordinal: u32, told: &Receiver<Moments>) -> Result<Log, String> {
        let gpu = Gpu::open(ordinal)?;
        let stream = gpu.stream()?;
        let (first, all) = self.places;
        let place = first + at;
        let meeting = gpu.meeting(self.board, place, (place + 1) % all)?;
        // The first launch loads code, which must not be measured. It waits for no peer.
        stream.meet(&meeting, 1_000, 0)?;
        stream.synchronize()?;
        let mut worker = Worker::new(&gpu, &stream, &self.tenant, self.tenant.gpus[at])?;
        let _ = self.say.send(Ok(Said::Ready));
        let Ok(moments) = told.recv() else {
            return Ok(Log::default());
        };
        worker.span(moments);
        let (ns, mut value) = (ns(self.tenant.kernel), 0_u32);
        let launch = || {
            value = value.wrapping_add(1);
            stream.meet(&meeting, ns, value)
        };
        worker.ahead(launch, |over| self.pact.claim(at, over), moments.end)?;
        if all > self.tenant.gpus.len() {
            // Other processes may have launched more than this one.
            self.board.leave(place, value);
        }
        Ok(worker.finish())
    }
}

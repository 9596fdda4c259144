//! Memory that graphs allocate when they run.
//!
//! An executable graph is sized when it is made or updated, from the allocation nodes of the graph
//! and of its child graphs, captured ones included. A launch may make the device's graph memory
//! grow by that much; the reserved size is read after the launch.

use core::ffi::{c_char, c_int};

use gpushare_cuda_abi::cuda::*;

use crate::driver::calls;
use crate::driver::device::{self, DeviceKey};
use crate::driver::stream_ref::StreamRef;
use crate::entry::args::{InOut, Opaque, Out};
use crate::entry::hooks;
use crate::gate::{self, Work, apart, seal};
use crate::holdings::arena;
use crate::holdings::frees;
use crate::holdings::graph_memory::GraphMemory;
use crate::hooks::graph_execs::{self as execs, Exec, may_allocate};
use crate::hooks::graph_held::{Last, Passage, running};
use crate::hooks::graph_size::{Sizes, size_up};
use crate::hooks::held::changing;
use crate::hooks::refusal;

hooks! {
    fn cuGraphInstantiate | cuGraphInstantiate_v2(exec: Out<'_, CUgraphExec>, graph: CUgraph, error: Opaque<'_, CUgraphNode>,
        log: Opaque<'_, c_char>, size: usize) -> CUresult
        = |real(..)| instantiating(exec, graph, (0, legacy()), |exec, _| seal::pass_work(|| real(exec, graph, error, log, size)));
    fn cuGraphInstantiateWithFlags(exec: Out<'_, CUgraphExec>, graph: CUgraph, flags: u64) -> CUresult
        = |real(..)| instantiating(exec, graph, (flags, legacy()), |exec, flags| seal::pass_work(|| real(exec, graph, flags)));
    fn cuGraphInstantiateWithParams | cuGraphInstantiateWithParams_ptsz(exec: Out<'_, CUgraphExec>, graph: CUgraph,
        params: InOut<'_, CUDA_GRAPH_INSTANTIATE_PARAMS>) -> CUresult
        = |real(..), of| instantiate_params(exec, graph, (params, of), |exec, graph, params| seal::pass_work(|| real(exec, graph, params)));
    #[graph]
    fn cuGraphLaunch | cuGraphLaunch_ptsz(exec: CUgraphExec, stream: CUstream) -> CUresult = |call, of| {
        let stream = of(stream);
        launching(exec, stream, &|call| gate::pass(&Work::One(stream, exec.into()), call), &call)
    };
    fn cuGraphUpload | cuGraphUpload_ptsz(exec: CUgraphExec, stream: CUstream) -> CUresult
        = |call, of| uploading(exec, of(stream), &|call| seal::pass_work(call), &call);
    fn cuGraphExecUpdate(exec: CUgraphExec, graph: CUgraph, node: Opaque<'_, CUgraphNode>, result: Opaque<'_, c_int>) -> CUresult
        = |call| updating(exec, graph, call);
    fn cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, result: Opaque<'_, CUgraphExecUpdateResultInfo_v1>) -> CUresult
        = |call| updating(exec, graph, call);
    fn cuGraphExecDestroy(exec: CUgraphExec) -> CUresult = |call| destroy(exec, call);
    fn cuDeviceGraphMemTrim(device: CUdevice) -> CUresult = |call| trimmed(device, call);
}

fn instantiate_params(
    exec: Out<'_, CUgraphExec>,
    graph: CUgraph,
    (params, of): (
        InOut<'_, CUDA_GRAPH_INSTANTIATE_PARAMS>,
        fn(CUstream) -> StreamRef,
    ),
    real: impl Fn(Out<'_, CUgraphExec>, CUgraph, InOut<'_, CUDA_GRAPH_INSTANTIATE_PARAMS>) -> CUresult,
) -> CUresult {
    // The driver refuses where there is no place for the result, or no parameters.
    let given = if exec.is_null() { None } else { params.read() };
    let Some(given) = given else {
        return real(exec, graph, params);
    };
    let how = (given.flags, of(given.hUploadStream));
    instantiating(exec, graph, how, |exec, asked| {
        if asked == given.flags {
            return real(exec, graph, params);
        }
        // It is refused. The program is told why: the driver says of an invalid graph what is
        // wrong, and of one for which there is no memory that there was an error.
        let mut others = given;
        others.flags = asked;
        let answer = real(exec, graph, InOut::to(&mut others));
        others.flags = given.flags;
        if answer.is_success() {
            others.result_out = CUgraphInstantiateResult::ERROR;
        }
        params.write(others);
        answer
    })
}

/// The stream of an upload for which none is named.
fn legacy() -> StreamRef {
    StreamRef::legacy(CUstream::NULL)
}

/// Makes an executable graph by `ask`.
fn instantiating(
    exec: Out<'_, CUgraphExec>,
    graph: CUgraph,
    how: (u64, StreamRef),
    ask: impl Fn(Out<'_, CUgraphExec>, u64) -> CUresult,
) -> CUresult {
    let answer = making(exec, graph, how, ask);
    if let Some(made) = exec.after(answer) {
        apart::graph_made(made);
    }
    answer
}

/// Makes an executable graph by `ask` and records its allocations. With the upload flag memory may
/// be taken at once, in the order of a stream.
fn making(
    exec: Out<'_, CUgraphExec>,
    graph: CUgraph,
    (flags, upload_in): (u64, StreamRef),
    ask: impl Fn(Out<'_, CUgraphExec>, u64) -> CUresult,
) -> CUresult {
    let call = || ask(exec, flags);
    // The driver refuses where there is no place for the result.
    if exec.is_null() {
        return call();
    }
    let sizes = match size_up(graph) {
        Ok(sizes) => sizes,
        Err(failed) => return unsized_up(exec, failed, call),
    };
    let Some(sizes) = sizes else {
        let answer = call();
        if may_allocate() {
            // It may have the handle of one that ended with its context.
            exec.after(answer).into_iter().for_each(execs::forget);
        }
        return answer;
    };
    let upload = u64::from(CUgraphInstantiate_flags::UPLOAD.0);
    let answer = if flags & upload != 0 {
        // Above the quota: without the flag no memory is taken, and an invalid call is invalid all
        // the same.
        let refusal = || {
            let mut tried = CUgraphExec::NULL;
            let asked = ask(Out::to(&mut tried), flags & !upload);
            if asked.is_success() {
                let _ = calls::destroy_exec(tried);
            }
            refusal::of(asked, || CUresult::OUT_OF_MEMORY)
        };
        running(&sizes, upload_in, &[], &refusal, &|call| call(), &call).0
    } else {
        call()
    };
    if let Some(made) = exec.after(answer) {
        execs::enter(made, sizes);
    }
    answer
}

/// Makes the driver report the error of a graph that could not be sized. A graph's memory must be
/// known: if the driver accepts it, it is destroyed again, and `failed` is the result.
#[cold]
fn unsized_up(
    exec: Out<'_, CUgraphExec>,
    failed: CUresult,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let answer = call();
    let Some(made) = exec.after(answer) else {
        return answer;
    };
    let _ = calls::destroy_exec(made);
    failed
}

/// Updates an executable graph by `call`: one that allocates has the allocations of `graph` then.
/// An update cannot be undone, so the driver is not asked for one that cannot be sized.
fn updating(exec: CUgraphExec, graph: CUgraph, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(old) = execs::known(exec) else {
        return changing(exec, call);
    };
    let sizes = match size_up(graph) {
        Ok(sizes) => sizes.unwrap_or_default(),
        Err(failed) => return failed,
    };
    let answer = lessening(&old.sizes, || changing(exec, call));
    if answer.is_success() {
        execs::enter(exec, sizes);
    }
    answer
}

fn launching(
    exec: CUgraphExec,
    stream: StreamRef,
    pass: Passage<'_>,
    call: &dyn Fn() -> CUresult,
) -> CUresult {
    if !may_allocate() {
        return pass(&mut || call());
    }
    let (answer, given) = submitting(exec, stream, pass, call);
    if let Some(given) = given.filter(|_| answer.is_success()) {
        execs::given(exec, given);
    }
    answer
}

/// An upload may take the memory of a launch, and the driver may give it to other graphs before
/// that: no launch relies on it.
fn uploading(
    exec: CUgraphExec,
    stream: StreamRef,
    pass: Passage<'_>,
    call: &dyn Fn() -> CUresult,
) -> CUresult {
    if !may_allocate() {
        return pass(&mut || call());
    }
    submitting(exec, stream, pass, call).0
}

/// Makes a call that may take a graph's memory. Returns what it was given too, if it may have been
/// given any.
fn submitting(
    exec: CUgraphExec,
    stream: StreamRef,
    pass: Passage<'_>,
    call: &dyn Fn() -> CUresult,
) -> (CUresult, Option<Last>) {
    let Some(Exec { sizes, last }) = execs::known(exec) else {
        return (pass(&mut || call()), None);
    };
    if stream.records() {
        return (pass(&mut || call()), None);
    }
    if stream.fault().is_some() {
        // The driver refuses it. If it succeeds all the same, its memory is charged, above the
        // limit if need be.
        let answer = pass(&mut || call());
        let follow = |(device, _): &(DeviceKey, u64)| arena::follow(&GraphMemory::of(*device));
        sizes.iter().for_each(follow);
        return (answer, None);
    }
    let refusal = || CUresult::OUT_OF_MEMORY;
    let (answer, given) = running(&sizes, stream, &last, &refusal, pass, call);
    (answer, Some(given))
}

fn destroy(exec: CUgraphExec, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(known) = execs::take(exec) else {
        return call();
    };
    let answer = lessening(&known.sizes, call);
    if answer.is_success() {
        execs::gone();
        frees::freed();
    } else {
        execs::put_back(exec, known);
    }
    answer
}

/// Makes a call after which the driver may have given back memory of a graph of these sizes.
fn lessening(sizes: &Sizes, call: impl FnOnce() -> CUresult) -> CUresult {
    let memories = || sizes.iter().map(|(device, _)| GraphMemory::of(*device));
    let lessens: Vec<_> = memories().map(|memory| memory.lessens()).collect();
    let answer = call();
    drop(lessens);
    if answer.is_success() {
        memories().for_each(|memory| arena::follow(&memory));
    }
    answer
}

fn trimmed(ordinal: CUdevice, call: impl FnOnce() -> CUresult) -> CUresult {
    let memory = device::of_ordinal(ordinal).map(GraphMemory::of);
    let lessens = memory.as_ref().map(GraphMemory::lessens);
    let answer = call();
    drop(lessens);
    if let Some(memory) = memory {
        arena::follow(&memory);
    }
    answer
}

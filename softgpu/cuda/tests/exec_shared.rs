//! Events that processes share, and the death of one of them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use crate::driver::*;
use gpushare_cuda_abi::cuda::*;

const HOUR: u64 = 3_600_000_000_000;
/// Where a process finds the handle of the event that it is to open.
const HANDLE: &str = "SOFTGPU_TEST_EVENT";

/// An event for several processes.
fn shared() -> CUevent {
    let flags = CUevent_flags::INTERPROCESS.0 | CUevent_flags::DISABLE_TIMING.0;
    get(CUevent::NULL, |out| cuEventCreate(out, flags))
}

fn exported(event: CUevent) -> String {
    let none = CUipcEventHandle { reserved: [0; 64] };
    let handle = get(none, |out| cuIpcGetEventHandle(out, event));
    let bytes = handle.reserved.map(|byte| byte.to_string());
    bytes.join(" ")
}

/// The event whose handle this process was started with.
fn opened() -> CUevent {
    open(&std::env::var(HANDLE).expect("the test gives one"))
}

fn open(handle: &str) -> CUevent {
    let bytes: Vec<_> = handle
        .split(' ')
        .map(|byte| byte.parse().expect("a byte"))
        .collect();
    let reserved = bytes.try_into().expect("64 bytes");
    get(CUevent::NULL, |out| {
        cuIpcOpenEventHandle(out, CUipcEventHandle { reserved })
    })
}

/// Another process on this machine, and what it has told.
struct Other(Child, String);

impl Other {
    #[track_caller]
    fn start(name: &str, handle: &str) -> Self {
        let spec = std::env::var("SOFTGPU").expect("the test sets a machine");
        let mut command = process(name, &spec);
        command.env(HANDLE, handle).stdout(Stdio::piped());
        let mut child = command.stdin(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let told = lines.find_map(|line| Some(line.ok()?.strip_prefix("TOLD ")?.to_owned()));
        let told = told.unwrap_or_else(|| panic!("{name} ended before it told anything"));
        Self(child, told)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The body of another process: it tells what `first` returns, and stays until it is killed.
fn stays(name: &str, first: impl FnOnce() -> String) {
    // Cargo also runs the tests that are bodies of other processes.
    if std::env::var_os("SOFTGPU_TEST").is_some() {
        alone(name, "", || {
            start();
            tell(first());
            let _ = std::io::stdin().lock().read_line(&mut String::new());
        });
    }
}

#[test]
fn a_process_records_an_event_behind_an_endless_kernel() {
    let name = "a_process_records_an_event_behind_an_endless_kernel";
    stays(name, || {
        let (event, stream) = (opened(), free_stream());
        spin(stream, HOUR);
        assert_eq!(cuEventRecord(event, stream), OK);
        "recorded".to_owned()
    });
}

#[test]
fn a_process_is_on_the_machine() {
    stays("a_process_is_on_the_machine", || "here".to_owned());
}

#[test]
fn a_process_makes_an_event_and_records_it_behind_an_endless_kernel() {
    let name = "a_process_makes_an_event_and_records_it_behind_an_endless_kernel";
    stays(name, || {
        let (event, stream) = (shared(), free_stream());
        spin(stream, HOUR);
        assert_eq!(cuEventRecord(event, stream), OK);
        exported(event)
    });
}

fn machine(test: &str) -> String {
    format!("name=exec-shared-{test}-{}", std::process::id())
}

/// Processes that stay; one of them has the slot of the process that died before.
fn further(name: &str) -> Vec<Other> {
    (0..6).map(|_| Other::start(name, "")).collect()
}

#[test]
fn what_a_dead_process_has_recorded_is_complete_for_ever() {
    let name = "what_a_dead_process_has_recorded_is_complete_for_ever";
    alone(name, &machine("ever"), || {
        start();
        let event = shared();
        let recorder = "a_process_records_an_event_behind_an_endless_kernel";
        let other = Other::start(recorder, &exported(event));
        assert_eq!(cuEventQuery(event), CUresult::NOT_READY, "it lives");
        drop(other);
        assert_eq!(cuEventQuery(event), OK, "it is dead");
        let _others = further("a_process_is_on_the_machine");
        assert_eq!(cuEventQuery(event), OK, "its slot is another's");
        assert_eq!(cuEventSynchronize(event), OK);
        let stream = free_stream();
        assert_eq!(cuStreamWaitEvent(stream, event, 0), OK);
        assert_eq!(cuStreamSynchronize(stream), OK);
    });
}

#[test]
fn a_record_after_a_death_is_not_complete_before_its_work() {
    let name = "a_record_after_a_death_is_not_complete_before_its_work";
    alone(name, &machine("record"), || {
        start();
        let event = shared();
        let recorder = "a_process_records_an_event_behind_an_endless_kernel";
        drop(Other::start(recorder, &exported(event)));
        let other = Other::start(recorder, &exported(event));
        assert_eq!(cuEventQuery(event), CUresult::NOT_READY);
        drop(other);
        assert_eq!(cuEventQuery(event), OK);
    });
}

#[test]
fn an_event_of_a_dead_maker_is_not_the_event_of_a_later_one() {
    let name = "an_event_of_a_dead_maker_is_not_the_event_of_a_later_one";
    alone(name, &machine("maker"), || {
        start();
        let maker = "a_process_makes_an_event_and_records_it_behind_an_endless_kernel";
        let other = Other::start(maker, "");
        let event = open(&other.1);
        assert_eq!(cuEventQuery(event), CUresult::NOT_READY, "it lives");
        drop(other);
        assert_eq!(cuEventQuery(event), OK, "it is dead");
        let others = further(maker);
        assert_eq!(cuEventQuery(event), OK, "its slot is another's");
        let event = open(&others[0].1);
        assert_eq!(cuEventQuery(event), CUresult::NOT_READY, "of a later one");
    });
}

#[test]
fn a_process_exports_memory_of_the_first_device() {
    stays("a_process_exports_memory_of_the_first_device", || {
        let at = memory(4096);
        write(at, &[3_u32]);
        let none = CUipcMemHandle { reserved: [0; 64] };
        let handle = get(none, |out| cuIpcGetMemHandle(out, at));
        handle.reserved.map(|byte| byte.to_string()).join(" ")
    });
}

/// Opens another process's memory as the only flag says: with peer access where it is needed.
fn open_memory(handle: &str, at: &mut CUdeviceptr) -> CUresult {
    let bytes: Vec<_> = handle
        .split(' ')
        .map(|byte| byte.parse().expect("a byte"))
        .collect();
    let reserved = bytes.try_into().expect("64 bytes");
    let flags = CUipcMem_flags::LAZY_ENABLE_PEER_ACCESS.0;
    cuIpcOpenMemHandle_v2(at, CUipcMemHandle { reserved }, flags)
}

/// The primary contexts of both devices; the second one's is current.
fn on_the_second_device() -> [CUcontext; 2] {
    assert_eq!(cuInit(0), OK);
    let context = |device| get(CUcontext::NULL, |out| cuDevicePrimaryCtxRetain(out, device));
    let both = [context(0), context(1)];
    assert_eq!(cuCtxSetCurrent(both[1]), OK);
    both
}

const EXPORTER: &str = "a_process_exports_memory_of_the_first_device";

#[test]
fn an_opened_handle_of_another_device_is_reached_by_kernels() {
    let name = "an_opened_handle_of_another_device_is_reached_by_kernels";
    alone(name, &(machine("peers") + ",count=2"), || {
        let [first, _] = on_the_second_device();
        let (other, stream, mut at) = (Other::start(EXPORTER, ""), free_stream(), 0);
        assert_eq!(open_memory(&other.1, &mut at), OK);
        assert_eq!(fill(stream, at, 1, 5), OK);
        assert_eq!(cuStreamSynchronize(stream), OK);
        assert_eq!(read(at, 1), [5]);
        // It is the program's peer access, too, while something is open.
        let already = CUresult::PEER_ACCESS_ALREADY_ENABLED;
        let enabled = cuCtxEnablePeerAccess(first, 0);
        assert!(enabled == OK || enabled == already, "{enabled:?}");
    });
}

#[test]
fn the_last_close_takes_the_peer_access_of_opened_handles_back() {
    let name = "the_last_close_takes_the_peer_access_of_opened_handles_back";
    alone(name, &(machine("last") + ",count=2"), || {
        let [first, second] = on_the_second_device();
        assert_eq!(cuCtxSetCurrent(first), OK);
        let plain = memory(4096);
        assert_eq!(cuCtxSetCurrent(second), OK);
        let (others, stream) = ([0; 2].map(|_| Other::start(EXPORTER, "")), free_stream());
        let mut at = [0; 2];
        assert_eq!(open_memory(&others[0].1, &mut at[0]), OK);
        assert_eq!(open_memory(&others[1].1, &mut at[1]), OK);
        assert_eq!(cuIpcCloseMemHandle(at[0]), OK);
        assert_eq!(fill(stream, plain, 1, 5), OK);
        assert_eq!(cuStreamSynchronize(stream), OK);
        assert_eq!(cuIpcCloseMemHandle(at[1]), OK);
        assert_eq!(fill(stream, plain, 1, 5), OK);
        assert_eq!(cuStreamSynchronize(stream), CUresult::ILLEGAL_ADDRESS);
    });
}

#[test]
fn the_last_close_leaves_peer_access_that_the_program_has_enabled() {
    let name = "the_last_close_leaves_peer_access_that_the_program_has_enabled";
    alone(name, &(machine("own") + ",count=2"), || {
        let [first, second] = on_the_second_device();
        assert_eq!(cuCtxEnablePeerAccess(first, 0), OK);
        assert_eq!(cuCtxSetCurrent(first), OK);
        let plain = memory(4096);
        assert_eq!(cuCtxSetCurrent(second), OK);
        let (other, stream, mut at) = (Other::start(EXPORTER, ""), free_stream(), 0);
        assert_eq!(open_memory(&other.1, &mut at), OK);
        assert_eq!(cuIpcCloseMemHandle(at), OK);
        assert_eq!(fill(stream, plain, 1, 5), OK);
        assert_eq!(cuStreamSynchronize(stream), OK);
    });
}

#[test]
fn handles_of_a_process_are_opened_by_one_context_of_a_device() {
    let name = "handles_of_a_process_are_opened_by_one_context_of_a_device";
    alone(name, &(machine("one") + ",count=2"), || {
        let [first, second] = on_the_second_device();
        let (others, mut at) = ([0; 2].map(|_| Other::start(EXPORTER, "")), 0);
        assert_eq!(open_memory(&others[0].1, &mut at), OK);
        let further = get(CUcontext::NULL, |out| cuCtxCreate_v2(out, 0, 1));
        let mut none = 0;
        let refused = open_memory(&others[0].1, &mut none);
        assert_eq!(refused, CUresult::INVALID_CONTEXT, "a second context");
        assert_eq!(open_memory(&others[1].1, &mut none), OK, "another process");
        assert_eq!(cuCtxSetCurrent(first), OK);
        assert_eq!(open_memory(&others[0].1, &mut none), OK, "another device");
        assert_eq!(cuCtxSetCurrent(second), OK);
        assert_eq!(cuIpcCloseMemHandle(at), OK);
        assert_eq!(cuCtxSetCurrent(further), OK);
        assert_eq!(open_memory(&others[0].1, &mut none), OK, "it was closed");
    });
}

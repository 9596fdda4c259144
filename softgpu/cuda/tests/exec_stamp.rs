//! When events complete while contexts share a device: only while the event's context has the
//! device.

use crate::driver::*;
use gpushare_cuda_abi::cuda::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const HOUR: u64 = 3_600_000 * MS;

/// Creates a context and a stream in it; the context stays current.
fn context() -> CUstream {
    get(CUcontext::NULL, |out| cuCtxCreate_v2(out, 0, 0));
    free_stream()
}

/// The time from `begin` to `end` on the device (ms).
fn later(begin: CUevent, end: CUevent) -> f32 {
    assert_eq!(cuEventSynchronize(begin), OK);
    assert_eq!(cuEventSynchronize(end), OK);
    get(0.0, |out| cuEventElapsedTime(out, begin, end))
}

/// The time between two events around a kernel of 100 us, while another context always has work.
fn pair() -> f32 {
    start();
    spin(free_stream(), HOUR);
    let (stream, begin, end) = (context(), event(), event());
    let gate = Gate::close(stream);
    assert_eq!(cuEventRecord(begin, stream), OK);
    spin(stream, 100 * US);
    assert_eq!(cuEventRecord(end, stream), OK);
    gate.open();
    later(begin, end)
}

#[test]
fn two_events_measure_a_kernel_without_its_wait_for_a_turn() {
    let name = "two_events_measure_a_kernel_without_its_wait_for_a_turn";
    alone(name, "", || assert_eq!(pair(), 0.1));
}

#[test]
fn two_events_include_the_wait_for_a_turn_with_stamp_any() {
    let name = "two_events_include_the_wait_for_a_turn_with_stamp_any";
    alone(name, "stamp=any", || assert!(pair() > 0.1));
}

/// The time from the end of another context's kernel, which has the device until then, to the
/// completion of an event in an idle stream.
fn idle() -> f32 {
    start();
    let (busy, over) = (free_stream(), event());
    let occupied = occupy(busy);
    assert_eq!(cuEventRecord(over, busy), OK);
    let (stream, mark) = (context(), event());
    assert_eq!(cuEventRecord(mark, stream), OK);
    occupied.open();
    later(over, mark)
}

#[test]
fn an_event_in_an_idle_stream_waits_for_its_contexts_turn() {
    let name = "an_event_in_an_idle_stream_waits_for_its_contexts_turn";
    alone(name, "slice=1s,switch=0", || assert!(idle() >= 0.0));
}

#[test]
fn an_event_in_an_idle_stream_completes_at_once_with_stamp_any() {
    let name = "an_event_in_an_idle_stream_completes_at_once_with_stamp_any";
    alone(name, "slice=1s,stamp=any", || assert!(idle() < 0.0));
}

#[test]
fn an_event_after_a_copy_does_not_wait_for_the_multiprocessors() {
    let name = "an_event_after_a_copy_does_not_wait_for_the_multiprocessors";
    alone(name, "slice=1s", || {
        start();
        let (busy, over) = (free_stream(), event());
        let occupied = occupy(busy);
        assert_eq!(cuEventRecord(over, busy), OK);
        let (stream, copied) = (context(), event());
        let (at, host) = (memory(4096), pinned(1024));
        let gate = Gate::close(stream);
        assert_eq!(cuMemcpyHtoDAsync_v2(at, host.cast(), 4096, stream), OK);
        assert_eq!(cuEventRecord(copied, stream), OK);
        gate.open();
        assert_eq!(cuEventSynchronize(copied), OK);
        occupied.open();
        assert!(later(over, copied) < 0.0);
    });
}

#[test]
fn an_event_after_another_contexts_work_waits_for_its_contexts_turn() {
    let name = "an_event_after_another_contexts_work_waits_for_its_contexts_turn";
    alone(name, "slice=1s,switch=0", || {
        start();
        let (first, done) = (free_stream(), event());
        spin(first, 50 * MS);
        assert_eq!(cuEventRecord(done, first), OK);
        let (busy, over) = (context(), event());
        let occupied = occupy(busy);
        assert_eq!(cuEventRecord(over, busy), OK);
        let (stream, mark) = (context(), event());
        assert_eq!(cuStreamWaitEvent(stream, done, 0), OK);
        assert_eq!(cuEventRecord(mark, stream), OK);
        occupied.open();
        assert!(later(over, mark) >= 0.0);
    });
}

#[test]
fn events_of_the_context_that_has_the_device_complete_at_once() {
    let name = "events_of_the_context_that_has_the_device_complete_at_once";
    alone(name, "slice=1s", || {
        start();
        let (busy, over, idle, mark) = (free_stream(), event(), free_stream(), event());
        let occupied = occupy(busy);
        assert_eq!(cuEventRecord(over, busy), OK);
        assert_eq!(cuEventRecord(mark, idle), OK);
        assert_eq!(cuEventSynchronize(mark), OK);
        occupied.open();
        assert!(later(over, mark) < 0.0);
    });
}

#[test]
fn events_of_an_idle_device_complete_at_once_and_take_no_time() {
    let name = "events_of_an_idle_device_complete_at_once_and_take_no_time";
    alone(name, "switch=50ms,preempt=50ms", || {
        start();
        let (first, begin) = (free_stream(), event());
        spin(first, US);
        assert_eq!(cuEventRecord(begin, first), OK);
        assert_eq!(cuEventSynchronize(begin), OK);
        let (second, mark) = (context(), event());
        assert_eq!(cuEventRecord(mark, second), OK);
        assert!(cuEventQuery(mark) == OK, "no context switch");
    });
}

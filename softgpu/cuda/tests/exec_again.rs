//! A context takes the time of its own work, whatever had the hardware before it.

use crate::driver::*;
use gpushare_cuda_abi::cuda::{CUcontext, CUevent};

const MS: u64 = 1_000_000;

/// The time of 20 ms on the multiprocessors, by events.
fn spun() -> f32 {
    let (stream, begin, end) = (free_stream(), event(), event());
    between(begin, end, || {
        assert_eq!(cuEventRecord(begin, stream), OK);
        spin(stream, 20 * MS);
        assert_eq!(cuEventRecord(end, stream), OK);
    })
}

/// The time of 8 MiB to the device, by events.
fn copied() -> f32 {
    let (stream, begin, end) = (free_stream(), event(), event());
    let (at, host, bytes) = (memory(8 << 20), pinned(2 << 20), 8 << 20);
    between(begin, end, || {
        assert_eq!(cuEventRecord(begin, stream), OK);
        assert_eq!(cuMemcpyHtoDAsync_v2(at, host.cast(), bytes, stream), OK);
        assert_eq!(cuEventRecord(end, stream), OK);
    })
}

fn between(begin: CUevent, end: CUevent, submit: impl FnOnce()) -> f32 {
    submit();
    assert_eq!(cuEventSynchronize(end), OK);
    get(0.0, |out| cuEventElapsedTime(out, begin, end))
}

/// 8 MiB at 1 GiB/s take 7.8 ms.
const SPEC: &str = "link=1GiB/s";

#[test]
fn work_takes_its_time_in_each_context_of_a_process() {
    let name = "work_takes_its_time_in_each_context_of_a_process";
    alone(name, SPEC, || {
        assert_eq!(cuInit(0), OK);
        for round in 0..4 {
            let context = get(CUcontext::NULL, |out| cuCtxCreate_v2(out, 0, 0));
            let (spun, copied) = (spun(), copied());
            assert!(spun >= 20.0, "round {round}: {spun}");
            assert!(copied >= 7.8, "round {round}: {copied}");
            assert_eq!(cuCtxDestroy_v2(context), OK);
        }
    });
}

#[test]
fn work_takes_its_time_after_a_reset_of_the_primary_context() {
    let name = "work_takes_its_time_after_a_reset_of_the_primary_context";
    alone(name, SPEC, || {
        for round in 0..3 {
            start();
            let (spun, copied) = (spun(), copied());
            assert!(spun >= 20.0, "round {round}: {spun}");
            assert!(copied >= 7.8, "round {round}: {copied}");
            assert_eq!(cuDevicePrimaryCtxReset_v2(0), OK);
        }
    });
}

#[test]
fn each_further_process_tells_the_time_of_its_work() {
    if std::env::var_os("SOFTGPU_TEST").is_none() {
        return;
    }
    alone(
        "each_further_process_tells_the_time_of_its_work",
        "",
        || {
            start();
            tell(format!("{} {}", spun(), copied()));
        },
    );
}

#[test]
fn work_takes_its_time_in_each_process_after_another() {
    let name = "work_takes_its_time_in_each_process_after_another";
    let machine = format!("name=exec-again-{},{SPEC}", std::process::id());
    alone(name, &machine, || {
        // A process that lives on keeps the machine. A seat is free again once its process's slot
        // is.
        start();
        let spec = std::env::var("SOFTGPU").expect("a machine");
        for round in 0..8 {
            let other = "each_further_process_tells_the_time_of_its_work";
            let told = alone(other, &spec, || unreachable!("another body"));
            let times: Vec<f32> = told.split(' ').map(|time| time.parse().unwrap()).collect();
            assert!(times[0] >= 20.0, "round {round}: {told}");
            assert!(times[1] >= 7.8, "round {round}: {told}");
        }
    });
}

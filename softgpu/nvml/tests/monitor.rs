//! A monitor's view of processes that start, hold memory, die and release it late.
#![allow(clippy::unwrap_used, reason = "a test fails on any error")]
#![allow(unsafe_code, reason = "calls the library as C programs do")]

use std::ffi::{CStr, CString, c_char};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use gpushare_cuda_abi::nvml::{
    nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlProcessDetail_v1_t, nvmlProcessDetailList_t,
    nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t, nvmlReturn_t, struct_version,
};
use softgpu::inspect::Observer;
use softgpu::spec::PAGE;
use softgpu_nvml as _;

/// One call of the C library.
macro_rules! c {
    ($call:expr) => {{
        // SAFETY: every pointer a test passes is NULL where that is allowed, or points to a local
        // as large as the call is told.
        unsafe { $call }
    }};
}

mod getters;

unsafe extern "C" {
    fn nvmlInit_v2() -> nvmlReturn_t;
    fn nvmlShutdown() -> nvmlReturn_t;
    fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char;
    fn nvmlDeviceGetCount_v2(count: *mut u32) -> nvmlReturn_t;
    fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: *mut nvmlDevice_t) -> nvmlReturn_t;
    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut nvmlDevice_t) -> nvmlReturn_t;
    fn nvmlDeviceGetHandleByPciBusId_v2(
        id: *const c_char,
        device: *mut nvmlDevice_t,
    ) -> nvmlReturn_t;
    fn nvmlDeviceGetUUID(device: nvmlDevice_t, uuid: *mut c_char, len: u32) -> nvmlReturn_t;
    fn nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, memory: *mut nvmlMemory_t) -> nvmlReturn_t;
    fn nvmlDeviceGetMemoryInfo_v2(
        device: nvmlDevice_t,
        memory: *mut nvmlMemory_v2_t,
    ) -> nvmlReturn_t;
    fn nvmlDeviceGetComputeRunningProcesses(
        device: nvmlDevice_t,
        count: *mut u32,
        infos: *mut nvmlProcessInfo_v1_t,
    ) -> nvmlReturn_t;
    fn nvmlDeviceGetComputeRunningProcesses_v3(
        device: nvmlDevice_t,
        count: *mut u32,
        infos: *mut nvmlProcessInfo_v2_t,
    ) -> nvmlReturn_t;
    fn nvmlDeviceGetRunningProcessDetailList(
        device: nvmlDevice_t,
        list: *mut nvmlProcessDetailList_t,
    ) -> nvmlReturn_t;
    fn nvmlVgpuInstanceGetUUID() -> nvmlReturn_t;
}

/// The machine of this test program. It is set in the environment before any code reads it.
static MACHINE: LazyLock<Observer> = LazyLock::new(|| {
    let spec = format!("name=test-nvml-{},mem=64MiB,count=2", std::process::id());
    // SAFETY: this is the only writer; every test forces MACHINE before it reads the environment.
    unsafe { std::env::set_var("SOFTGPU", &spec) };
    let observer = Observer::open(&spec.parse().unwrap()).unwrap();
    assert_eq!(c!(nvmlInit_v2()), nvmlReturn_t::SUCCESS);
    observer
});

fn device(index: u32) -> nvmlDevice_t {
    LazyLock::force(&MACHINE);
    let mut device = nvmlDevice_t::NULL;
    assert_eq!(
        c!(nvmlDeviceGetHandleByIndex_v2(index, &raw mut device)),
        nvmlReturn_t::SUCCESS
    );
    device
}

/// Not a test: the body of a process that takes `SOFTGPU_TEST_PAGES` pages of the second device and
/// holds them.
#[test]
#[ignore = "other tests run it as a separate process"]
fn tenant() {
    let Ok(pages) = std::env::var("SOFTGPU_TEST_PAGES") else {
        return;
    };
    let pages = pages.parse().unwrap();
    softgpu::world::init().unwrap();
    softgpu::world::process()
        .unwrap()
        .device(1)
        .unwrap()
        .take(softgpu::Kind::Linear, pages)
        .unwrap();
    println!("\nholding");
    let _ = std::io::stdin().read(&mut [0]);
}

fn start_tenant(pages: u64) -> Child {
    LazyLock::force(&MACHINE);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "tenant", "--ignored", "--nocapture"])
        .env("SOFTGPU_TEST_PAGES", pages.to_string());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "holding"));
    child
}

/// The process list of `_v3`, read with its two calls.
fn processes(device: nvmlDevice_t) -> Vec<(u32, u64)> {
    let mut count = 0;
    let first = c!(nvmlDeviceGetComputeRunningProcesses_v3(
        device,
        &raw mut count,
        std::ptr::null_mut()
    ));
    if first == nvmlReturn_t::SUCCESS {
        assert_eq!(count, 0);
        return Vec::new();
    }
    assert_eq!(first, nvmlReturn_t::INSUFFICIENT_SIZE);
    let mut infos = vec![
        nvmlProcessInfo_v2_t {
            pid: 0,
            usedGpuMemory: 0,
            gpuInstanceId: 0,
            computeInstanceId: 0
        };
        count as usize
    ];
    let second = c!(nvmlDeviceGetComputeRunningProcesses_v3(
        device,
        &raw mut count,
        infos.as_mut_ptr()
    ));
    assert_eq!(second, nvmlReturn_t::SUCCESS);
    infos.truncate(count as usize);
    infos
        .iter()
        .map(|info| (info.pid, info.usedGpuMemory))
        .collect()
}

#[test]
fn a_process_is_in_every_version_of_the_list_and_leaves_it_late() {
    let device = device(1);
    let mut tenant = start_tenant(5);
    assert_eq!(processes(device), [(tenant.id(), 5 * PAGE)]);

    let mut count = 1;
    let mut old = nvmlProcessInfo_v1_t {
        pid: 0,
        usedGpuMemory: 0,
    };
    assert_eq!(
        c!(nvmlDeviceGetComputeRunningProcesses(
            device,
            &raw mut count,
            &raw mut old
        )),
        nvmlReturn_t::SUCCESS
    );
    assert_eq!(
        (count, old.pid, old.usedGpuMemory),
        (1, tenant.id(), 5 * PAGE)
    );

    let mut detail = nvmlProcessDetail_v1_t {
        pid: 0,
        usedGpuMemory: 0,
        gpuInstanceId: 0,
        computeInstanceId: 0,
        usedGpuCcProtectedMemory: 0,
    };
    let version = struct_version::<nvmlProcessDetailList_t>(1);
    let mut list = nvmlProcessDetailList_t {
        version,
        mode: 0,
        numProcArrayEntries: 1,
        procArray: &raw mut detail,
    };
    assert_eq!(
        c!(nvmlDeviceGetRunningProcessDetailList(device, &raw mut list)),
        nvmlReturn_t::SUCCESS
    );
    assert_eq!((list.numProcArrayEntries, detail.pid), (1, tenant.id()));
    list.version += 1;
    let invalid = c!(nvmlDeviceGetRunningProcessDetailList(device, &raw mut list));
    assert_eq!(invalid, nvmlReturn_t::INVALID_ARGUMENT, "as nvml.h says");

    tenant.kill().unwrap();
    tenant.wait().unwrap();
    let mut looks = 0;
    while !processes(device).is_empty() {
        looks += 1;
        assert!(looks <= 10, "a poll must end");
    }
    assert!(
        looks > 0,
        "a dead process is listed until its memory has returned"
    );
    let mut memory = nvmlMemory_t {
        total: 0,
        free: 0,
        used: 1,
    };
    assert_eq!(
        c!(nvmlDeviceGetMemoryInfo(device, &raw mut memory)),
        nvmlReturn_t::SUCCESS
    );
    assert_eq!(
        (memory.total, memory.free, memory.used),
        (64 << 20, 64 << 20, 0)
    );
}

#[test]
fn a_monitor_holds_no_memory_and_sees_every_device() {
    let mut count = 0;
    device(0);
    assert_eq!(
        c!(nvmlDeviceGetCount_v2(&raw mut count)),
        nvmlReturn_t::SUCCESS
    );
    assert_eq!(count, 2);
    let here = std::process::id().cast_signed();
    let mine = |device: &softgpu::inspect::DeviceTruth| {
        device.processes.iter().any(|process| process.pid == here)
    };
    assert!(!MACHINE.snapshot().unwrap().devices.iter().any(mine));
    assert!(processes(device(0)).is_empty());
}

#[test]
fn a_device_is_found_by_its_own_uuid_and_bus_id_only() {
    let mut text = [0; 80];
    assert_eq!(
        c!(nvmlDeviceGetUUID(device(1), text.as_mut_ptr(), 80)),
        nvmlReturn_t::SUCCESS
    );
    let uuid = c!(CStr::from_ptr(text.as_ptr()));
    assert_eq!(
        uuid.to_str().unwrap(),
        MACHINE.snapshot().unwrap().devices[1].uuid
    );
    let mut found = nvmlDevice_t::NULL;
    assert_eq!(
        c!(nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &raw mut found)),
        nvmlReturn_t::SUCCESS
    );
    assert_eq!(found, device(1));
    for (id, index) in [("00000000:1B:00.0", 0), ("0000:2b:00.0", 1)] {
        let id = CString::new(id).unwrap();
        assert_eq!(
            c!(nvmlDeviceGetHandleByPciBusId_v2(
                id.as_ptr(),
                &raw mut found
            )),
            nvmlReturn_t::SUCCESS
        );
        assert_eq!(found, device(index));
    }
    assert_eq!(
        c!(nvmlDeviceGetHandleByUUID(
            c"GPU-nothing".as_ptr(),
            &raw mut found
        )),
        nvmlReturn_t::NOT_FOUND
    );
    assert_eq!(
        c!(nvmlDeviceGetUUID(device(1), text.as_mut_ptr(), 40)),
        nvmlReturn_t::INSUFFICIENT_SIZE
    );
    assert_eq!(
        c!(nvmlDeviceGetHandleByIndex_v2(2, &raw mut found)),
        nvmlReturn_t::INVALID_ARGUMENT
    );
    assert_eq!(
        c!(nvmlDeviceGetUUID(nvmlDevice_t::NULL, text.as_mut_ptr(), 80)),
        nvmlReturn_t::INVALID_ARGUMENT
    );
}

#[test]
fn a_wrong_struct_version_is_refused_and_other_calls_unsupported() {
    let version = struct_version::<nvmlMemory_v2_t>(2);
    let mut memory = nvmlMemory_v2_t {
        version,
        total: 0,
        reserved: 0,
        free: 0,
        used: 0,
    };
    assert_eq!(
        c!(nvmlDeviceGetMemoryInfo_v2(device(0), &raw mut memory)),
        nvmlReturn_t::SUCCESS
    );
    assert_eq!(memory.total, 64 << 20);
    memory.version = struct_version::<nvmlMemory_v2_t>(1);
    assert_eq!(
        c!(nvmlDeviceGetMemoryInfo_v2(device(0), &raw mut memory)),
        nvmlReturn_t::ARGUMENT_VERSION_MISMATCH
    );
    assert_eq!(c!(nvmlVgpuInstanceGetUUID()), nvmlReturn_t::NOT_SUPPORTED);
    assert_eq!(
        c!(CStr::from_ptr(nvmlErrorString(nvmlReturn_t::NOT_SUPPORTED))),
        c"Not supported"
    );
}

#[test]
fn the_library_stays_open_until_the_last_shutdown() {
    device(0);
    assert_eq!(c!(nvmlInit_v2()), nvmlReturn_t::SUCCESS);
    assert_eq!(c!(nvmlShutdown()), nvmlReturn_t::SUCCESS);
    device(0);
}

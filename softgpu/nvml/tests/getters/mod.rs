//! Queries beyond memory and processes: those that a device answers, and those that it refuses.

use std::time::{Duration, Instant};

use gpushare_cuda_abi::nvml::{
    nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlFieldValue_t, nvmlGpuTopologyLevel_t,
    nvmlPstates_t, nvmlReturn_t, nvmlValue_t, nvmlValueType_t,
};

use super::device;

unsafe extern "C" {
    fn nvmlDeviceGetFieldValues(
        device: nvmlDevice_t,
        count: i32,
        values: *mut nvmlFieldValue_t,
    ) -> nvmlReturn_t;
    fn nvmlDeviceGetCpuAffinity(device: nvmlDevice_t, words: u32, set: *mut u64) -> nvmlReturn_t;
    fn nvmlDeviceGetMemoryAffinity(
        device: nvmlDevice_t,
        words: u32,
        set: *mut u64,
        scope: u32,
    ) -> nvmlReturn_t;
    fn nvmlDeviceGetTopologyNearestGpus(
        device: nvmlDevice_t,
        level: nvmlGpuTopologyLevel_t,
        count: *mut u32,
        devices: *mut nvmlDevice_t,
    ) -> nvmlReturn_t;
    fn nvmlDeviceGetSupportedPerformanceStates(
        device: nvmlDevice_t,
        states: *mut nvmlPstates_t,
        size: u32,
    ) -> nvmlReturn_t;
    fn nvmlDeviceGetSupportedGraphicsClocks(
        device: nvmlDevice_t,
        memory: u32,
        count: *mut u32,
        mhz: *mut u32,
    ) -> nvmlReturn_t;
    fn nvmlDeviceGetTotalEnergyConsumption(device: nvmlDevice_t, energy: *mut u64) -> nvmlReturn_t;
    fn nvmlSystemGetDriverBranch(info: *mut Branch, len: u32) -> nvmlReturn_t;
    fn nvmlUnitGetCount(count: *mut u32) -> nvmlReturn_t;
    fn nvmlEventSetCreate(set: *mut nvmlEventSet_t) -> nvmlReturn_t;
    fn nvmlEventSetFree(set: nvmlEventSet_t) -> nvmlReturn_t;
    fn nvmlEventSetWait_v2(
        set: nvmlEventSet_t,
        data: *mut nvmlEventData_t,
        milliseconds: u32,
    ) -> nvmlReturn_t;
    fn nvmlDeviceRegisterEvents(
        device: nvmlDevice_t,
        kinds: u64,
        set: nvmlEventSet_t,
    ) -> nvmlReturn_t;
    fn nvmlDeviceGetSupportedEventTypes(device: nvmlDevice_t, kinds: *mut u64) -> nvmlReturn_t;
    fn nvmlDeviceGetNumFans(device: nvmlDevice_t, fans: *mut u32) -> nvmlReturn_t;
    fn nvmlDeviceGetAttributes_v2(device: nvmlDevice_t, attributes: *mut u64) -> nvmlReturn_t;
}

#[repr(C)]
struct Branch {
    version: u32,
    text: [u8; 80],
}

const OK: nvmlReturn_t = nvmlReturn_t::SUCCESS;

#[test]
fn each_field_has_its_own_result_and_type() {
    let asked = [1, 83, 142, 186, 32, 5000];
    let empty = |id| nvmlFieldValue_t {
        fieldId: id,
        scopeId: 0,
        timestamp: 0,
        latencyUsec: 0,
        valueType: nvmlValueType_t::DOUBLE,
        nvmlReturn: nvmlReturn_t::UNKNOWN,
        value: nvmlValue_t { ullVal: 7 },
    };
    let mut fields = asked.map(empty);
    let all = c!(nvmlDeviceGetFieldValues(device(0), 6, fields.as_mut_ptr()));
    assert_eq!(all, OK);
    let told = fields.map(|field| (field.fieldId, field.nvmlReturn, field.valueType));
    let (int, long) = (
        nvmlValueType_t::UNSIGNED_INT,
        nvmlValueType_t::UNSIGNED_LONG_LONG,
    );
    // There are no links.
    assert_eq!(told[0], (1, OK, int));
    assert_eq!(told[1], (83, OK, long));
    assert_eq!(told[2], (142, OK, int));
    assert_eq!(told[3], (186, OK, int));
    assert_eq!(told[4].1, nvmlReturn_t::NOT_SUPPORTED);
    assert_eq!(told[5].1, nvmlReturn_t::INVALID_ARGUMENT);
    assert!(fields.iter().all(|field| field.timestamp > 0));
    for (device, count) in [(device(0), 0), (device(0), -1), (nvmlDevice_t::NULL, 6)] {
        let refused = c!(nvmlDeviceGetFieldValues(device, count, fields.as_mut_ptr()));
        assert_eq!(refused, nvmlReturn_t::INVALID_ARGUMENT);
    }
}

#[test]
fn a_device_is_near_processors_memory_and_its_neighbours() {
    let mut words = [0_u64; 16];
    assert_eq!(
        c!(nvmlDeviceGetCpuAffinity(device(0), 16, words.as_mut_ptr())),
        OK
    );
    assert!(words.iter().any(|word| *word != 0));
    assert_eq!(
        c!(nvmlDeviceGetMemoryAffinity(
            device(0),
            16,
            words.as_mut_ptr(),
            0
        )),
        OK
    );
    assert_eq!((words[0], words[1]), (1, 0));
    for (count, scope) in [(0, 0), (16, 2)] {
        let refused = c!(nvmlDeviceGetMemoryAffinity(
            device(0),
            count,
            words.as_mut_ptr(),
            scope
        ));
        assert_eq!(refused, nvmlReturn_t::INVALID_ARGUMENT);
    }
    for (level, expected) in [
        (nvmlGpuTopologyLevel_t::NODE, vec![device(1)]),
        (nvmlGpuTopologyLevel_t::SYSTEM, vec![]),
    ] {
        let (mut count, mut found) = (8, [nvmlDevice_t::NULL; 8]);
        assert_eq!(
            c!(nvmlDeviceGetTopologyNearestGpus(
                device(0),
                level,
                &raw mut count,
                found.as_mut_ptr()
            )),
            OK
        );
        assert_eq!(found[..count as usize], expected);
    }
}

#[test]
fn clocks_are_listed_and_the_energy_grows() {
    let mut states = [nvmlPstates_t(99); 4];
    assert_eq!(
        c!(nvmlDeviceGetSupportedPerformanceStates(
            device(0),
            states.as_mut_ptr(),
            16
        )),
        OK
    );
    assert_eq!(
        states,
        [
            nvmlPstates_t::PSTATE_0,
            nvmlPstates_t::UNKNOWN,
            nvmlPstates_t::UNKNOWN,
            nvmlPstates_t::UNKNOWN
        ]
    );
    let (mut count, mut clocks) = (0, [0; 256]);
    let mut ask = |memory, count: *mut u32| {
        c!(nvmlDeviceGetSupportedGraphicsClocks(
            device(0),
            memory,
            count,
            clocks.as_mut_ptr()
        ))
    };
    assert_eq!(ask(3201, &raw mut count), nvmlReturn_t::INSUFFICIENT_SIZE);
    assert_eq!(ask(3201, &raw mut count), OK);
    assert_eq!(ask(810, &raw mut count), nvmlReturn_t::NOT_FOUND);
    assert_eq!((count, clocks[0], clocks[109]), (110, 1980, 345));
    let energy = || {
        let mut energy = 0;
        assert_eq!(
            c!(nvmlDeviceGetTotalEnergyConsumption(
                device(0),
                &raw mut energy
            )),
            OK
        );
        energy
    };
    let before = energy();
    assert!(before > 0 && energy() >= before);
}

#[test]
fn an_event_set_is_waited_for_until_its_time_is_over() {
    let (mut set, mut kinds) = (nvmlEventSet_t::NULL, 0);
    let mut data = nvmlEventData_t {
        device: nvmlDevice_t::NULL,
        eventType: 0,
        eventData: 0,
        gpuInstanceId: 0,
        computeInstanceId: 0,
    };
    let device = device(0);
    assert_eq!(
        c!(nvmlDeviceGetSupportedEventTypes(device, &raw mut kinds)),
        OK
    );
    assert_eq!(c!(nvmlEventSetCreate(&raw mut set)), OK);
    assert_eq!(c!(nvmlDeviceRegisterEvents(device, kinds, set)), OK);
    for (kinds, answer) in [
        (0, nvmlReturn_t::INVALID_ARGUMENT),
        (1 << 40, nvmlReturn_t::NOT_SUPPORTED),
    ] {
        assert_eq!(c!(nvmlDeviceRegisterEvents(device, kinds, set)), answer);
    }
    let began = Instant::now();
    assert_eq!(
        c!(nvmlEventSetWait_v2(set, &raw mut data, 20)),
        nvmlReturn_t::TIMEOUT
    );
    assert!(began.elapsed() >= Duration::from_millis(20));
    assert_eq!(c!(nvmlEventSetFree(set)), OK);
    let gone = nvmlReturn_t::INVALID_ARGUMENT;
    assert_eq!(c!(nvmlEventSetFree(set)), gone);
    assert_eq!(c!(nvmlEventSetWait_v2(set, &raw mut data, 20)), gone);
}

#[test]
fn parts_a_device_of_this_kind_lacks_are_not_supported() {
    let (device, mut number, mut units) = (device(0), 0, 7);
    let fans = c!(nvmlDeviceGetNumFans(device, &raw mut number));
    let mut attributes = [0; 16];
    let parts = c!(nvmlDeviceGetAttributes_v2(device, attributes.as_mut_ptr()));
    assert_eq!((fans, parts), (nvmlReturn_t::NOT_SUPPORTED, fans));
    assert_eq!(c!(nvmlUnitGetCount(&raw mut units)), OK);
    assert_eq!(units, 0);
    let version = 84 | 1 << 24;
    for (version, room, answer) in [
        (version, 80, OK),
        (version, 4, nvmlReturn_t::INSUFFICIENT_SIZE),
        (0, 80, nvmlReturn_t::ARGUMENT_VERSION_MISMATCH),
    ] {
        let mut info = Branch {
            version,
            text: [0; 80],
        };
        assert_eq!(c!(nvmlSystemGetDriverBranch(&raw mut info, room)), answer);
        assert_eq!(info.text[4..].starts_with(b"_00\0"), answer == OK);
    }
}

//! Values of C enumerations: named where they are known, carried where they are not.

use gpushare_cuda_abi::cuda::{
    CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUjit_target, CUresult, CUshared_carveout, CUstream,
};
use gpushare_cuda_abi::nvml::{
    nvmlMemory_v2_t, nvmlProcessDetailList_v1_t, nvmlReturn_t, struct_version,
};

#[test]
fn a_result_is_named_as_the_header_names_it() {
    assert_eq!(CUresult::SUCCESS.c_name(), Some(c"CUDA_SUCCESS"));
    assert_eq!(
        CUresult::OUT_OF_MEMORY.name(),
        Some("CUDA_ERROR_OUT_OF_MEMORY")
    );
    assert_eq!(CUresult(999), CUresult::UNKNOWN);
    assert_eq!(nvmlReturn_t::SUCCESS.name(), Some("NVML_SUCCESS"));
    assert_eq!(
        nvmlReturn_t(25).name(),
        Some("NVML_ERROR_ARGUMENT_VERSION_MISMATCH")
    );
}

#[test]
fn a_value_of_a_newer_driver_is_carried_without_a_name() {
    assert_eq!(CUresult(998).name(), None);
    assert_eq!(
        format!("{:?} {:?}", CUresult(998), CUresult(2)),
        "CUresult(998) CUDA_ERROR_OUT_OF_MEMORY"
    );
}

#[test]
fn success_is_ok_and_every_other_code_is_an_error() {
    assert_eq!(CUresult::SUCCESS.ok(), Ok(()));
    for (code, _) in CUresult::NAMES.iter().skip(1) {
        assert_eq!(CUresult(*code).ok(), Err(CUresult(*code)));
    }
    assert_eq!(nvmlReturn_t::NOT_SUPPORTED.ok(), Err(nvmlReturn_t(3)));
}

#[test]
fn values_keep_their_sign_and_their_width() {
    assert_eq!(CUshared_carveout::DEFAULT.0, -1);
    assert_eq!(CUjit_target::COMPUTE_90A.0, 0x10000 + 90);
}

#[test]
fn streams_named_by_number_are_no_null_streams() {
    assert_eq!(CUstream::default(), CUstream::NULL);
    assert!(CUstream::NULL.is_null());
    for (stream, number) in [(CU_STREAM_LEGACY, 1), (CU_STREAM_PER_THREAD, 2)] {
        assert!(!stream.is_null());
        assert_eq!(stream.0.addr(), number);
    }
}

#[test]
fn a_struct_version_holds_size_and_number() {
    assert_eq!(struct_version::<nvmlMemory_v2_t>(2), 0x0200_0028);
    assert_eq!(struct_version::<nvmlProcessDetailList_v1_t>(1), 0x0100_0018);
}

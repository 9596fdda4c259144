//! The values of `cuDeviceGetAttribute`: the figures of an H200, and the abilities of this
//! simulator.

use gpushare_cuda_abi::cuda::CUdevice_attribute as A;
use softgpu::spec::ManagedAccess;
use softgpu::{Device, facts};

/// The value of an attribute; `None` if the attribute does not exist. An existing attribute without
/// a table entry is 0: not supported.
pub(crate) fn value(device: &Device, attribute: A) -> Option<i32> {
    if attribute.0 == 0 || attribute.0 >= A::MAX.0 {
        return None;
    }
    let (domain, bus, slot) = facts::pci(device.index());
    let int = |value: u32| i32::try_from(value).expect("device figures are small");
    Some(match attribute {
        A::MULTIPROCESSOR_COUNT => int(device.spec().sm),
        A::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED => i32::from(device.spec().vmm),
        // All algorithms that cuda.h has.
        A::MEM_DECOMPRESS_ALGORITHM_MASK => 7 * i32::from(device.spec().decompress),
        A::MEM_DECOMPRESS_MAXIMUM_LENGTH => (4 << 20) * i32::from(device.spec().decompress),
        A::CONCURRENT_MANAGED_ACCESS => {
            i32::from(device.spec().managed == ManagedAccess::Concurrent)
        }
        A::HOST_NUMA_MEMORY_POOLS_SUPPORTED => i32::from(device.spec().driver >= 12020),
        A::HOST_MEMORY_POOLS_SUPPORTED => i32::from(device.spec().driver >= 13000),
        A::CLOCK_RATE => int(facts::CLOCK_KHZ),
        A::MEMORY_CLOCK_RATE => int(facts::MEMORY_CLOCK_KHZ),
        A::GLOBAL_MEMORY_BUS_WIDTH => int(facts::BUS_WIDTH),
        A::PCI_DOMAIN_ID => int(domain),
        A::PCI_BUS_ID => int(bus),
        A::PCI_DEVICE_ID => int(slot),
        // CUDA 11 does not know it.
        A::MPS_ENABLED if device.spec().driver < 12000 => return None,
        A::MPS_ENABLED => i32::from(crate::mps::is_shared()),
        A::COMPUTE_CAPABILITY_MAJOR => facts::CAPABILITY.0,
        A::COMPUTE_CAPABILITY_MINOR => facts::CAPABILITY.1,
        _ => find(LIMITS, attribute)
            .or_else(|| find(ABILITIES, attribute))
            .or_else(|| find(TEXTURES, attribute))
            .unwrap_or(0),
    })
}

fn find(table: &[(A, i32)], attribute: A) -> Option<i32> {
    table
        .iter()
        .find(|(known, _)| *known == attribute)
        .map(|(_, value)| *value)
}

const LIMITS: &[(A, i32)] = &[
    (A::MAX_THREADS_PER_BLOCK, 1024),
    (A::MAX_BLOCK_DIM_X, 1024),
    (A::MAX_BLOCK_DIM_Y, 1024),
    (A::MAX_BLOCK_DIM_Z, 64),
    (A::MAX_GRID_DIM_X, i32::MAX),
    (A::MAX_GRID_DIM_Y, 65535),
    (A::MAX_GRID_DIM_Z, 65535),
    (A::MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10),
    (A::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 << 10),
    (A::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 228 << 10),
    (A::RESERVED_SHARED_MEMORY_PER_BLOCK, 1 << 10),
    (A::TOTAL_CONSTANT_MEMORY, 64 << 10),
    (A::WARP_SIZE, 32),
    (A::MAX_PITCH, i32::MAX),
    (A::MAX_REGISTERS_PER_BLOCK, 64 << 10),
    (A::MAX_REGISTERS_PER_MULTIPROCESSOR, 64 << 10),
    (A::MAX_THREADS_PER_MULTIPROCESSOR, 2048),
    (A::MAX_BLOCKS_PER_MULTIPROCESSOR, 32),
    (A::L2_CACHE_SIZE, 60 << 20),
    (A::MAX_PERSISTING_L2_CACHE_SIZE, 32 << 20),
    (A::MAX_ACCESS_POLICY_WINDOW_SIZE, 128 << 20),
    (A::ASYNC_ENGINE_COUNT, 3),
    (A::TEXTURE_ALIGNMENT, 512),
    (A::SURFACE_ALIGNMENT, 512),
    (A::TEXTURE_PITCH_ALIGNMENT, 32),
    (A::SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2),
    (A::MEM_SYNC_DOMAIN_COUNT, 4),
    (A::NUMA_ID, -1),
    (A::LOCALITY_DOMAIN_COUNT, 1),
];

/// Supported features. An attribute that is missing here is 0: not supported.
const ABILITIES: &[(A, i32)] = &[
    (A::GPU_OVERLAP, 1),
    (A::CAN_MAP_HOST_MEMORY, 1),
    (A::CONCURRENT_KERNELS, 1),
    (A::ECC_ENABLED, 1),
    (A::UNIFIED_ADDRESSING, 1),
    (A::STREAM_PRIORITIES_SUPPORTED, 1),
    (A::IPC_EVENT_SUPPORTED, 1),
    (A::GLOBAL_L1_CACHE_SUPPORTED, 1),
    (A::LOCAL_L1_CACHE_SUPPORTED, 1),
    (A::MANAGED_MEMORY, 1),
    (A::COMPUTE_PREEMPTION_SUPPORTED, 1),
    (A::CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1),
    (A::CAN_USE_64_BIT_STREAM_MEM_OPS, 1),
    (A::CAN_USE_STREAM_WAIT_VALUE_NOR, 1),
    (A::COOPERATIVE_LAUNCH, 1),
    (A::HOST_REGISTER_SUPPORTED, 1),
    (A::READ_ONLY_HOST_REGISTER_SUPPORTED, 1),
    (A::HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1),
    (A::MEMORY_POOLS_SUPPORTED, 1),
    // A set of CUmemAllocationHandleType: file descriptors.
    (A::MEMPOOL_SUPPORTED_HANDLE_TYPES, 1),
    (A::CLUSTER_LAUNCH, 1),
    (A::UNIFIED_FUNCTION_POINTERS, 1),
];

const TEXTURES: &[(A, i32)] = &[
    (A::CAN_TEX2D_GATHER, 1),
    (A::MAXIMUM_TEXTURE1D_WIDTH, 131_072),
    (A::MAXIMUM_TEXTURE2D_WIDTH, 131_072),
    (A::MAXIMUM_TEXTURE2D_HEIGHT, 65_536),
    (A::MAXIMUM_TEXTURE3D_WIDTH, 16_384),
    (A::MAXIMUM_TEXTURE3D_HEIGHT, 16_384),
    (A::MAXIMUM_TEXTURE3D_DEPTH, 16_384),
    (A::MAXIMUM_TEXTURE2D_LAYERED_WIDTH, 32_768),
    (A::MAXIMUM_TEXTURE2D_LAYERED_HEIGHT, 32_768),
    (A::MAXIMUM_TEXTURE2D_LAYERED_LAYERS, 2048),
    (A::MAXIMUM_TEXTURE1D_LAYERED_WIDTH, 32_768),
    (A::MAXIMUM_TEXTURE1D_LAYERED_LAYERS, 2048),
    (A::MAXIMUM_TEXTURE2D_GATHER_WIDTH, 32_768),
    (A::MAXIMUM_TEXTURE2D_GATHER_HEIGHT, 32_768),
    (A::MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE, 8192),
    (A::MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE, 8192),
    (A::MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE, 32_768),
    (A::MAXIMUM_TEXTURECUBEMAP_WIDTH, 32_768),
    (A::MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH, 32_768),
    (A::MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS, 2046),
    (A::MAXIMUM_SURFACE1D_WIDTH, 32_768),
    (A::MAXIMUM_SURFACE2D_WIDTH, 131_072),
    (A::MAXIMUM_SURFACE2D_HEIGHT, 65_536),
    (A::MAXIMUM_SURFACE3D_WIDTH, 16_384),
    (A::MAXIMUM_SURFACE3D_HEIGHT, 16_384),
    (A::MAXIMUM_SURFACE3D_DEPTH, 16_384),
    (A::MAXIMUM_SURFACE1D_LAYERED_WIDTH, 32_768),
    (A::MAXIMUM_SURFACE1D_LAYERED_LAYERS, 2048),
    (A::MAXIMUM_SURFACE2D_LAYERED_WIDTH, 32_768),
    (A::MAXIMUM_SURFACE2D_LAYERED_HEIGHT, 32_768),
    (A::MAXIMUM_SURFACE2D_LAYERED_LAYERS, 2048),
    (A::MAXIMUM_SURFACECUBEMAP_WIDTH, 32_768),
    (A::MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH, 32_768),
    (A::MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS, 2046),
    (A::MAXIMUM_TEXTURE1D_LINEAR_WIDTH, 268_435_456),
    (A::MAXIMUM_TEXTURE2D_LINEAR_WIDTH, 131_072),
    (A::MAXIMUM_TEXTURE2D_LINEAR_HEIGHT, 65_000),
    (A::MAXIMUM_TEXTURE2D_LINEAR_PITCH, 2_097_120),
    (A::MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH, 32_768),
    (A::MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT, 32_768),
    (A::MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH, 32_768),
];

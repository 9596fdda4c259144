//! Functions, modules, libraries and the just-in-time linker.

use core::ffi::c_void;

use crate::abi::c_enum;

c_enum! {
    /// The assumptions of an occupancy calculation.
    pub struct CUoccupancy_flags(u32);
    "CU_OCCUPANCY_" {
        DEFAULT = 0x0,
        DISABLE_CACHING_OVERRIDE = 0x1,
    }
}

c_enum! {
    /// Attributes of a function that can be queried or set.
    ///
    /// Argument of `cuKernelGetAttribute`, `cuKernelSetAttribute`, `cuFuncGetAttribute`,
    /// `cuFuncSetAttribute`.
    pub struct CUfunction_attribute(u32);
    "CU_FUNC_ATTRIBUTE_" {
        MAX_THREADS_PER_BLOCK = 0,
        SHARED_SIZE_BYTES = 1,
        CONST_SIZE_BYTES = 2,
        LOCAL_SIZE_BYTES = 3,
        NUM_REGS = 4,
        PTX_VERSION = 5,
        BINARY_VERSION = 6,
        CACHE_MODE_CA = 7,
        MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
        PREFERRED_SHARED_MEMORY_CARVEOUT = 9,
        CLUSTER_SIZE_MUST_BE_SET = 10,
        REQUIRED_CLUSTER_WIDTH = 11,
        REQUIRED_CLUSTER_HEIGHT = 12,
        REQUIRED_CLUSTER_DEPTH = 13,
        NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,
        CLUSTER_SCHEDULING_POLICY_PREFERENCE = 15,
        DEVICE_NODE_UPDATE_SUPPORTED = 16,
        SHARED_MEMORY_MODE = 17,
        MAX = 18,
    }
}

c_enum! {
    /// Whether a function prefers L1 cache or shared memory.
    ///
    /// Argument of `cuCtxGetCacheConfig`, `cuCtxSetCacheConfig`, `cuKernelSetCacheConfig`,
    /// `cuFuncSetCacheConfig`.
    pub struct CUfunc_cache(u32);
    "CU_FUNC_CACHE_PREFER_" {
        NONE = 0,
        SHARED = 1,
        L1 = 2,
        EQUAL = 3,
    }
}

c_enum! {
    /// How wide the banks of shared memory are.
    ///
    /// Argument of `cuCtxGetSharedMemConfig`, `cuCtxSetSharedMemConfig`,
    /// `cuFuncSetSharedMemConfig`.
    pub struct CUsharedconfig(u32);
    "CU_SHARED_MEM_CONFIG_" {
        DEFAULT_BANK_SIZE = 0,
        FOUR_BYTE_BANK_SIZE = 1,
        EIGHT_BYTE_BANK_SIZE = 2,
    }
}

c_enum! {
    /// How much of the L1 cache is shared memory: a percentage, or one of these.
    pub struct CUshared_carveout(i32);
    "CU_SHAREDMEM_CARVEOUT_" {
        DEFAULT = -1,
        MAX_SHARED = 100,
        MAX_L1 = 0,
    }
}

c_enum! {
    /// An option of the just-in-time compiler and linker.
    ///
    /// Argument of `cuModuleLoadDataEx`, `cuLinkCreate`, `cuLinkAddData`, `cuLinkAddFile` and 2
    /// more.
    pub struct CUjit_option(u32);
    "CU_JIT_" {
        MAX_REGISTERS = 0,
        THREADS_PER_BLOCK = 1,
        WALL_TIME = 2,
        INFO_LOG_BUFFER = 3,
        INFO_LOG_BUFFER_SIZE_BYTES = 4,
        ERROR_LOG_BUFFER = 5,
        ERROR_LOG_BUFFER_SIZE_BYTES = 6,
        OPTIMIZATION_LEVEL = 7,
        TARGET_FROM_CUCONTEXT = 8,
        TARGET = 9,
        FALLBACK_STRATEGY = 10,
        GENERATE_DEBUG_INFO = 11,
        LOG_VERBOSE = 12,
        GENERATE_LINE_INFO = 13,
        CACHE_MODE = 14,
        NEW_SM3X_OPT = 15,
        FAST_COMPILE = 16,
        GLOBAL_SYMBOL_NAMES = 17,
        GLOBAL_SYMBOL_ADDRESSES = 18,
        GLOBAL_SYMBOL_COUNT = 19,
        LTO = 20,
        FTZ = 21,
        PREC_DIV = 22,
        PREC_SQRT = 23,
        FMA = 24,
        REFERENCED_KERNEL_NAMES = 25,
        REFERENCED_KERNEL_COUNT = 26,
        REFERENCED_VARIABLE_NAMES = 27,
        REFERENCED_VARIABLE_COUNT = 28,
        OPTIMIZE_UNUSED_DEVICE_VARIABLES = 29,
        POSITION_INDEPENDENT_CODE = 30,
        MIN_CTA_PER_SM = 31,
        MAX_THREADS_PER_BLOCK = 32,
        OVERRIDE_DIRECTIVE_VALUES = 33,
        SPLIT_COMPILE = 34,
        BINARY_LOADER_THREAD_COUNT = 35,
        NUM_OPTIONS = 36,
    }
}

c_enum! {
    /// The architecture to compile for: 10 * major + minor, with a bit for architecture-specific
    /// and family-specific code.
    pub struct CUjit_target(u32);
    "CU_TARGET_" {
        COMPUTE_30 = 30,
        COMPUTE_32 = 32,
        COMPUTE_35 = 35,
        COMPUTE_37 = 37,
        COMPUTE_50 = 50,
        COMPUTE_52 = 52,
        COMPUTE_53 = 53,
        COMPUTE_60 = 60,
        COMPUTE_61 = 61,
        COMPUTE_62 = 62,
        COMPUTE_70 = 70,
        COMPUTE_72 = 72,
        COMPUTE_75 = 75,
        COMPUTE_80 = 80,
        COMPUTE_86 = 86,
        COMPUTE_87 = 87,
        COMPUTE_89 = 89,
        COMPUTE_90 = 90,
        COMPUTE_100 = 100,
        COMPUTE_110 = 110,
        COMPUTE_103 = 103,
        COMPUTE_107 = 107,
        COMPUTE_120 = 120,
        COMPUTE_121 = 121,
        COMPUTE_90A = 0x1005a,
        COMPUTE_100A = 0x10064,
        COMPUTE_110A = 0x1006e,
        COMPUTE_103A = 0x10067,
        COMPUTE_107A = 0x1006b,
        COMPUTE_120A = 0x10078,
        COMPUTE_121A = 0x10079,
        COMPUTE_100F = 0x20064,
        COMPUTE_110F = 0x2006e,
        COMPUTE_103F = 0x20067,
        COMPUTE_107F = 0x2006b,
        COMPUTE_120F = 0x20078,
        COMPUTE_121F = 0x20079,
    }
}

c_enum! {
    /// The preferred form of code where no matching binary exists.
    pub struct CUjit_fallback(u32);
    "CU_PREFER_" {
        PTX = 0,
        BINARY = 1,
    }
}

c_enum! {
    /// How compiled loads use the caches.
    pub struct CUjit_cacheMode(u32);
    "CU_JIT_CACHE_OPTION_" {
        NONE = 0,
        CG = 1,
        CA = 2,
    }
}

c_enum! {
    /// The format of the linker's input.
    ///
    /// Argument of `cuLinkAddData`, `cuLinkAddFile`.
    pub struct CUjitInputType(u32);
    "CU_JIT_" {
        INPUT_CUBIN = 0,
        INPUT_PTX = 1,
        INPUT_FATBINARY = 2,
        INPUT_OBJECT = 3,
        INPUT_LIBRARY = 4,
        INPUT_NVVM = 5,
        NUM_INPUT_TYPES = 6,
    }
}

c_enum! {
    /// An option of loading a library.
    ///
    /// Argument of `cuLibraryLoadData`, `cuLibraryLoadFromFile`.
    pub struct CUlibraryOption(u32);
    "CU_LIBRARY_" {
        HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE = 0,
        BINARY_IS_PRESERVED = 1,
        NUM_OPTIONS = 2,
    }
}

/// The host side of a library: its functions and data.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUlibraryHostUniversalFunctionAndDataTable {
    pub functionTable: *mut c_void,
    pub functionWindowSize: usize,
    pub dataTable: *mut c_void,
    pub dataWindowSize: usize,
}

c_enum! {
    /// When functions of a module are loaded.
    ///
    /// Argument of `cuModuleGetLoadingMode`.
    pub struct CUmoduleLoadingMode(u32);
    "CU_MODULE_" {
        EAGER_LOADING = 1,
        LAZY_LOADING = 2,
    }
}

c_enum! {
    /// Whether a function is loaded yet.
    ///
    /// Argument of `cuFuncIsLoaded`.
    pub struct CUfunctionLoadingState(u32);
    "CU_FUNCTION_LOADING_STATE_" {
        UNLOADED = 0,
        LOADED = 1,
        MAX = 2,
    }
}

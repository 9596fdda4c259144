// Modules, and launches of the kernel `fill` with both forms of parameters.
#include "facts.h"

// PTX for fill(uint32 *dst, uint64 n, uint32 value): one thread strides over all elements.
const char *const FILL_PTX =
    ".version 7.0\n.target sm_52\n.address_size 64\n"
    ".visible .entry fill(.param .u64 dst, .param .u64 n, .param .u32 value) {\n"
    ".reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %rd<8>;\n"
    "ld.param.u64 %rd1, [dst]; ld.param.u64 %rd2, [n]; ld.param.u32 %r1, [value];\n"
    "cvta.to.global.u64 %rd1, %rd1;\n"
    "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mov.u32 %r5, %nctaid.x;\n"
    "mad.wide.u32 %rd3, %r2, %r3, 0; cvt.u64.u32 %rd4, %r4; add.u64 %rd3, %rd3, %rd4;\n"
    "mul.wide.u32 %rd5, %r3, %r5;\n"
    "LOOP: setp.ge.u64 %p1, %rd3, %rd2; @%p1 bra DONE;\n"
    "shl.b64 %rd6, %rd3, 2; add.u64 %rd7, %rd1, %rd6; st.global.u32 [%rd7], %r1;\n"
    "add.u64 %rd3, %rd3, %rd5; bra LOOP;\n"
    "DONE: ret;\n}\n";

static int holds(address at, uint32_t wanted) {
    uint32_t values[256];
    CU(cuMemcpyDtoH_v2, values, at, sizeof values);
    for (int i = 0; i < 256; i++)
        if (values[i] != wanted) return 0;
    return 1;
}

void launch_facts(void) {
    handle module = NULL, function = NULL, library = NULL, kernel = NULL, stream = NULL;
    address a = 0;
    unsigned long long n = 256;
    uint32_t value = 0x11;
    int number = 0;
    begin();
    must("cuStreamCreate", CU(cuStreamCreate, &stream, 1));
    must("cuMemAlloc", CU(cuMemAlloc_v2, &a, (size_t)1024));
    say_result("load_null", CU(cuModuleLoadData, &module, NULL));
    say_result("load", CU(cuModuleLoadData, &module, FILL_PTX));
    say_result("function", CU(cuModuleGetFunction, &function, module, "fill"));
    say_result("function_null_name", CU(cuModuleGetFunction, &function, module, NULL));
    void *parameters[] = {&a, &n, &value};
    say_result("launch", CU(cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
    say_result("synchronize", CU(cuStreamSynchronize, stream));
    say_bool("launch_works", holds(a, 0x11));
    struct __attribute__((packed)) {
        address dst;
        unsigned long long n;
        uint32_t value;
    } buffer = {a, n, 0x22};
    size_t size = sizeof buffer;
    void *extra[] = {(void *)1, &buffer, (void *)2, &size, NULL};
    say_result("launch_extra", CU(cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, extra));
    CU(cuStreamSynchronize, stream);
    say_bool("launch_extra_works", holds(a, 0x22));
    say_result("launch_both", CU(cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, extra));
    say_result("launch_grid_0", CU(cuLaunchKernel, function, 0, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
    say_result("launch_block_0", CU(cuLaunchKernel, function, 1, 1, 1, 0, 1, 1, 0, stream, parameters, NULL));
    say_result("launch_block_too_large", CU(cuLaunchKernel, function, 1, 1, 1, 1025, 1, 1, 0, stream, parameters, NULL));
    say_result("launch_shared_too_large", CU(cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 100000, stream, parameters, NULL));
    say_result("launch_null_function", CU(cuLaunchKernel, NULL, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
    say_result("attribute", CU(cuFuncGetAttribute, &number, 0, function));
    say_number("max_threads_per_block", number);
    say_result("unload", CU(cuModuleUnload, module));
    say_result("library", CU(cuLibraryLoadData, &library, FILL_PTX, NULL, NULL, 0, NULL, NULL, 0));
    say_result("kernel", CU(cuLibraryGetKernel, &kernel, library, "fill"));
    value = 0x33;
    say_result("launch_kernel_handle", CU(cuLaunchKernel, kernel, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
    CU(cuStreamSynchronize, stream);
    say_bool("launch_kernel_handle_works", holds(a, 0x33));
    say_result("kernel_function", CU(cuKernelGetFunction, &function, kernel));
    say_result("library_unload", CU(cuLibraryUnload, library));
}

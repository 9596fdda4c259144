// Kernels of PTX texts: results, time limits of blocks, what a text with errors does at the load.
#include "facts.h"

static const char *const KERNELS_PTX =
    ".version 7.0\n.target sm_60\n.address_size 64\n"
    ".visible .global .align 4 .u32 target = 3;\n"
    ".visible .global .align 8 .u64 pointer = target;\n"
    // total[0] becomes the sum of all threads' numbers, by way of shared memory and a barrier. A parameter must not have the
    // kernel's name: NVIDIA's assembler would read the address of the kernel.
    ".visible .entry sum(.param .u64 total) {\n"
    ".reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<3>; .shared .align 4 .b8 part[256];\n"
    "ld.param.u64 %rd1, [total]; mov.u32 %r1, %tid.x; mov.u32 %r2, part; mad.lo.u32 %r3, %r1, 4, %r2; st.shared.u32 [%r3], %r1;\n"
    "bar.sync 0; setp.ne.u32 %p, %r1, 0; @%p ret; mov.u32 %r4, 0; mov.u32 %r5, 0;\n"
    "LOOP: ld.shared.u32 %r6, [%r2]; add.u32 %r4, %r4, %r6; add.u32 %r2, %r2, 4; add.u32 %r5, %r5, 1;\n"
    "setp.lt.u32 %p, %r5, 64; @%p bra LOOP; red.global.add.u32 [%rd1], %r4; ret; }\n"
    ".visible .entry follow() { .reg .b64 %rd<2>; .reg .b32 %r<2>; ld.global.u64 %rd1, [pointer]; ld.u32 %r1, [%rd1];\n"
    "add.u32 %r1, %r1, 4; st.u32 [%rd1], %r1; ret; }\n"
    ".visible .entry idle(.param .u64 unread) { ret; }\n"
    ".visible .entry narrow().maxntid 32 { ret; }\n"
    ".visible .entry exact().reqntid 32 { ret; }\n"
    ".visible .entry trapped() { trap; ret; }\n";

static result launch(handle function, int grid, int block, void **parameters) {
    return CU(cuLaunchKernel, function, grid, 1, 1, block, 1, 1, 0, NULL, parameters, NULL);
}

void kernel_facts(void) {
    enum { SHARED_SIZE_BYTES = 1, MAX_THREADS = 0 };
    handle module = NULL, function = NULL;
    address a = 0, target = 0;
    uint32_t word = 0;
    int number = 0;
    begin();
    say_result("load_text_with_errors", CU(cuModuleLoadData, &module, ".version 7.0\n.target sm_60\n.address_size 64\nnonsense\n"));
    must("cuModuleLoadData", CU(cuModuleLoadData, &module, KERNELS_PTX));
    must("cuMemAlloc", CU(cuMemAlloc_v2, &a, (size_t)64));
    CU(cuMemsetD32_v2, a, 0u, (size_t)1);
    must("cuModuleGetFunction", CU(cuModuleGetFunction, &function, module, "sum"));
    CU(cuFuncGetAttribute, &number, SHARED_SIZE_BYTES, function);
    say_number("shared_bytes_of_the_kernel", number);
    void *parameters[] = {&a};
    say_result("sum", launch(function, 3, 64, parameters));
    CU(cuMemcpyDtoH_v2, &word, a, sizeof word);
    say_number("sum_of_three_blocks", word);
    must("cuModuleGetFunction", CU(cuModuleGetFunction, &function, module, "follow"));
    say_result("follow", launch(function, 1, 1, NULL));
    CU(cuModuleGetGlobal_v2, &target, NULL, module, "target");
    CU(cuMemcpyDtoH_v2, &word, target, sizeof word);
    say_number("an_address_as_initial_value_was_followed", word);
    must("cuModuleGetFunction", CU(cuModuleGetFunction, &function, module, "narrow"));
    say_result("block_of_maxntid", launch(function, 1, 32, NULL));
    say_result("block_beyond_maxntid", launch(function, 1, 33, NULL));
    must("cuModuleGetFunction", CU(cuModuleGetFunction, &function, module, "exact"));
    say_result("block_of_reqntid", launch(function, 1, 32, NULL));
    say_result("block_below_reqntid", launch(function, 1, 31, NULL));
    // A driver that launches it anyway must find a kernel that does no harm.
    must("cuModuleGetFunction", CU(cuModuleGetFunction, &function, module, "idle"));
    say_result("launch_without_parameters", launch(function, 1, 1, NULL));
    // It loses the context.
    must("cuModuleGetFunction", CU(cuModuleGetFunction, &function, module, "trapped"));
    say_result("launch_that_traps", launch(function, 1, 1, NULL));
    say_result("after_a_trap", CU(cuCtxSynchronize));
}

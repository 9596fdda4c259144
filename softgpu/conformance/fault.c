// The effect of a kernel's illegal access on its context and on other contexts.
#include "facts.h"

extern const char *const FILL_PTX;

void fault_facts(void) {
    handle module = NULL, function = NULL, other = NULL, current = NULL;
    address a = 0, wrong = 0x1000;
    unsigned long long n = 16;
    uint32_t value = 1;
    size_t bytes = 0;
    int number = 0;
    handle primary = begin();
    must("cuModuleLoadData", CU(cuModuleLoadData, &module, FILL_PTX));
    must("cuModuleGetFunction", CU(cuModuleGetFunction, &function, module, "fill"));
    must("cuMemAlloc", CU(cuMemAlloc_v2, &a, (size_t)512));
    void *parameters[] = {&wrong, &n, &value};
    say_result("launch", CU(cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
    say_result("synchronize", CU(cuCtxSynchronize));
    say_result("then.synchronize", CU(cuCtxSynchronize));
    say_result("then.alloc", CU(cuMemAlloc_v2, &a, (size_t)512));
    say_result("then.free", CU(cuMemFree_v2, a));
    say_result("then.info", CU(cuMemGetInfo_v2, &bytes, &bytes));
    say_result("then.launch", CU(cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
    say_result("then.get_current", CU(cuCtxGetCurrent, &current));
    say_bool("then.still_current", current == primary);
    say_result("then.count", CU(cuDeviceGetCount, &number));
    say_result("then.reset", CU(cuDevicePrimaryCtxReset_v2, 0));
    say_result("retain_anew", CU(cuDevicePrimaryCtxRetain, &other, 0));
    say_result("use_anew", CU(cuMemAlloc_v2, &a, (size_t)512));
    say_result("create_anew", CU(cuCtxCreate_v2, &other, 0, 0));
}

// The same in a context beside the primary one, which has memory.
void fault_beside_facts(void) {
    handle module = NULL, function = NULL, second = NULL, third = NULL;
    address a = 0, wrong = 0x1000;
    unsigned long long n = 16;
    uint32_t value = 1;
    handle primary = begin();
    must("cuMemAlloc", CU(cuMemAlloc_v2, &a, (size_t)512));
    must("cuCtxCreate", CU(cuCtxCreate_v2, &second, 0, 0));
    must("cuModuleLoadData", CU(cuModuleLoadData, &module, FILL_PTX));
    must("cuModuleGetFunction", CU(cuModuleGetFunction, &function, module, "fill"));
    void *parameters[] = {&wrong, &n, &value};
    must("cuLaunchKernel", CU(cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
    say_result("beside.synchronize", CU(cuCtxSynchronize));
    must("cuCtxSetCurrent", CU(cuCtxSetCurrent, primary));
    say_result("beside.primary.synchronize", CU(cuCtxSynchronize));
    say_result("beside.primary.fill", CU(cuMemsetD8_v2, a, 1, (size_t)512));
    say_result("beside.primary.free", CU(cuMemFree_v2, a));
    say_result("beside.destroy", CU(cuCtxDestroy_v2, second));
    say_result("beside.create_anew", CU(cuCtxCreate_v2, &third, 0, 0));
}

/* Pairs of kernels in two streams, of which the first waits for a value that is written behind the second. It knows nothing of
 * gpushare.
 *
 *   pairs COUNT NS       kernels of NS nanoseconds; says how many pairs were made, and the result */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/driver.h"

#define CU(name, ...) (((int (*)())symbol(#name))(__VA_ARGS__))

static void *function;

static int spin(uint64_t ns, void *stream) {
    void *parameters[] = {&ns};
    return CU(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static int pairs(unsigned count, uint64_t ns) {
    void *context, *module, *waits, *writes, *word;
    unsigned long long at;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return fprintf(stderr, "%s\n", dlerror()), 2;
    TRY(CU(cuInit, 0));
    TRY(CU(cuDevicePrimaryCtxRetain, &context, 0));
    TRY(CU(cuCtxSetCurrent, context));
    TRY(CU(cuModuleLoadData, &module, "any image"));
    TRY(CU(cuModuleGetFunction, &function, module, "spin"));
    TRY(CU(cuStreamCreate, &waits, 1));
    TRY(CU(cuStreamCreate, &writes, 1));
    TRY(CU(cuMemHostAlloc, &word, (size_t)4096, 2));
    TRY(CU(cuMemHostGetDevicePointer_v2, &at, word, 0));
    *(volatile uint32_t *)word = 0;
    for (unsigned i = 1; i <= count; i++) {
        TRY(CU(cuStreamWaitValue32_v2, waits, at, i, 0));
        TRY(spin(ns, waits));
        TRY(spin(ns, writes));
        TRY(CU(cuStreamWriteValue32_v2, writes, at, i, 0));
        if (i % 8 == 0) TRY(CU(cuStreamSynchronize, waits));
    }
    return CU(cuCtxSynchronize);
}

int main(int argc, char **argv) {
    unsigned count = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    int result = pairs(count, argc > 2 ? strtoull(argv[2], NULL, 10) : 0);
    printf("pairs %u %d\n", count, result);
    return 0;
}

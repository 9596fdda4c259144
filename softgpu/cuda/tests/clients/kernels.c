/* Memory that kernels may access. */
#include "cu.h"

result cuModuleLoadData(handle *, const void *), cuModuleGetFunction(handle *, handle, const char *);
result cuLaunchKernel(handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **);

static handle kernel(const char *name) {
    static handle module, function;
    if (!function) {
        DO(cuModuleLoadData(&module, "image"));
        DO(cuModuleGetFunction(&function, module, name));
    }
    return function;
}

static void fill(dptr at, unsigned long long count, unsigned value) {
    void *params[] = { &at, &count, &value };
    DO(cuLaunchKernel(kernel("fill"), 64, 1, 1, 256, 1, 1, 0, NULL, params, NULL));
}

static void everywhere(void) {
    start();
    size_t before;
    dptr plain, managed, mapped, physical, async;
    void *pinned;
    struct alloc_prop prop = { .type = 1, .location = { 1, 0 } };
    struct access access = { { 1, 0 }, 3 };
    enum { N = 300000 };
    static unsigned out[N];
    DO(cuMemAlloc_v2(&plain, N * 4));
    DO(cuMemAllocAsync(&async, N * 4, NULL));
    DO(cuMemCreate(&physical, 2 * MIB, &prop, 0));
    DO(cuMemAddressReserve(&mapped, 2 * MIB, 0, 0, 0));
    DO(cuMemMap(mapped, 2 * MIB, 0, physical, 0));
    DO(cuMemSetAccess(mapped, 2 * MIB, &access, 1));
    DO(cuMemHostAlloc(&pinned, N * 4, 0));
    DO(cuMemAllocManaged(&managed, N * 4, 1));
    fill(plain, N, 0); /* loads the module's code */
    DO(cuCtxSynchronize());
    before = settled();
    dptr all[] = { plain, async, mapped, (dptr)(uintptr_t)pinned, managed };
    for (unsigned n = 0; n < 5; n++) {
        fill(all[n], N, n + 1);
        DO(cuMemcpyDtoH_v2(out, all[n], sizeof out));
        TRUE(out[0] == n + 1 && out[N - 1] == n + 1);
    }
    TRUE(settled() == before - 2 * MIB); /* the managed page became resident at the kernel's access */
}

static void one_too_many(void) {
    start();
    dptr at;
    DO(cuMemAlloc_v2(&at, 1000));
    fill(at, 251, 1);
    IS(ILLEGAL_ADDRESS, cuCtxSynchronize());
    IS(ILLEGAL_ADDRESS, cuMemFree_v2(at));
}

static void freed(void) {
    start();
    dptr at;
    DO(cuMemAlloc_v2(&at, 1000));
    DO(cuMemFree_v2(at));
    fill(at, 1, 1);
    IS(ILLEGAL_ADDRESS, cuCtxSynchronize());
}

static void freed_in_order(void) {
    start();
    dptr at;
    handle pool;
    unsigned long long keep = ~0ull;
    DO(cuDeviceGetDefaultMemPool(&pool, 0));
    DO(cuMemPoolSetAttribute(pool, 4, &keep));
    DO(cuMemAllocAsync(&at, 1000, NULL));
    fill(at, 250, 1);
    DO(cuMemFreeAsync(at, NULL));
    DO(cuCtxSynchronize());
    fill(at, 250, 1); /* the pool still holds the memory, but the allocation is freed */
    IS(ILLEGAL_ADDRESS, cuCtxSynchronize());
}

TESTS(T(everywhere), T(one_too_many), T(freed), T(freed_in_order))

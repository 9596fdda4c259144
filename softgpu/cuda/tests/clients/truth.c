/* Allocates memory of every kind in steps, and waits for a line on standard input after each step. */
#include "cu.h"

static void step(const char *what) {
    char line[16];
    puts(what);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        exit(3);
}

static void every_kind(void) {
    handle context = start(), array, stream, pool;
    dptr small, large, pitched, physical, at, managed, async;
    size_t pitch;
    struct alloc_prop prop = { .type = 1, .handles = 1, .location = { 1, 0 } };
    struct array_desc desc = { 1000, 1000, 32, 1 };
    struct access access = { { 1, 0 }, 3 };
    step("context");
    DO(cuMemAlloc_v2(&small, 1));
    DO(cuMemAlloc_v2(&large, 3 * MIB + 1));
    DO(cuMemAllocPitch_v2(&pitched, &pitch, 1000, 5000, 4));
    step("linear");
    DO(cuArrayCreate_v2(&array, &desc));
    step("array");
    DO(cuMemCreate(&physical, 4 * MIB, &prop, 0));
    DO(cuMemAddressReserve(&at, 8 * MIB, 0, 0, 0));
    DO(cuMemMap(at, 4 * MIB, 0, physical, 0));
    DO(cuMemMap(at + 4 * MIB, 4 * MIB, 0, physical, 0));
    DO(cuMemSetAccess(at, 8 * MIB, &access, 1));
    DO(cuMemRelease(physical));
    step("vmm");
    DO(cuMemAllocManaged(&managed, 5 * MIB, 1));
    step("managed, nowhere");
    DO(cuMemsetD8_v2(managed, 1, 5 * MIB));
    DO(cuCtxSynchronize());
    step("managed, resident");
    DO(cuStreamCreate(&stream, 1));
    DO(cuMemAllocAsync(&async, 33 * MIB, stream));
    step("pool");
    DO(cuMemFree_v2(small));
    DO(cuMemFree_v2(large));
    DO(cuMemFree_v2(pitched));
    DO(cuArrayDestroy(array));
    DO(cuMemUnmap(at, 8 * MIB));
    DO(cuMemFree_v2(managed));
    DO(cuMemFreeAsync(async, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuDeviceGetDefaultMemPool(&pool, 0));
    step("freed");
    DO(cuMemAlloc_v2(&small, 1));
    DO(cuMemAlloc_v2(&large, 3 * MIB + 1));
    DO(cuArrayCreate_v2(&array, &desc));
    DO(cuMemAllocManaged(&managed, 5 * MIB, 1));
    DO(cuCtxSetCurrent(context));
    DO(cuDevicePrimaryCtxReset_v2(0));
    step("reset");
    DO(cuMemCreate(&physical, 4 * MIB, &prop, 0));
    step("left behind");
}

/* A second context beside the primary one, and each of them destroyed. */
static void contexts(void) {
    handle second, third;
    start();
    step("one");
    DO(cuCtxCreate_v2(&second, 0, 0));
    step("two");
    DO(cuCtxCreate_v2(&third, 0, 0));
    DO(cuCtxDestroy_v2(third));
    DO(cuDevicePrimaryCtxReset_v2(0));
    step("the second");
    DO(cuCtxDestroy_v2(second));
    step("none");
}

/* Exports physical memory and is killed. */
static void maker(void) {
    start();
    dptr physical, at;
    struct alloc_prop prop = { .type = 1, .handles = 1, .location = { 1, 0 } };
    DO(cuMemCreate(&physical, 6 * MIB, &prop, 0));
    DO(cuMemAlloc_v2(&at, 6 * MIB));
    step("made");
}

/* Shares memory as an exported handle and as a legacy IPC handle. */
static void exporter(void) {
    start();
    dptr physical, small, large;
    struct alloc_prop prop = { .type = 1, .handles = 1, .location = { 1, 0 } };
    struct ipc handle_;
    int fd;
    DO(cuMemCreate(&physical, 6 * MIB, &prop, 0));
    DO(cuMemAlloc_v2(&small, 1));
    DO(cuMemAlloc_v2(&large, 6 * MIB));
    step("made");
    DO(cuMemExportToShareableHandle(&fd, physical, 1, 0));
    DO(cuIpcGetMemHandle(&handle_, small));
    DO(cuIpcGetMemHandle(&handle_, large));
    step("shareable");
    DO(cuMemRelease(physical));
    DO(cuMemFree_v2(small));
    DO(cuMemFree_v2(large));
    step("freed");
}

TESTS(T(contexts), T(exporter), T(every_kind), T(maker))

/* A driver that does nothing, except that it calls the program back once, from inside an allocation
 * or a launch, through `callback`, which the program sets. Built as libcuda.so.1. */
#define cuMemAlloc_v2 plain_alloc
#define cuLaunchKernel plain_launch
#include "../bench/stub_driver.c"
#undef cuMemAlloc_v2
#undef cuLaunchKernel

void (*callback)(void);

static void call_back(void) {
    void (*call)(void) = callback;
    callback = NULL;
    if (call) call();
}

int cuMemAlloc_v2(uint64_t *at, size_t bytes) {
    call_back();
    return plain_alloc(at, bytes);
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **params, void **extra) {
    call_back();
    return plain_launch(function, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}

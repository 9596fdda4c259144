/* A tool that the driver loads while it is initialised (CUDA_INJECTION64_PATH), as profilers and
 * checkers are: it looks functions up, calls the driver from that call and from threads of its own,
 * and holds some memory of the device. It knows nothing of gpushare.
 *
 * It prints one line, `tool FIRST SECOND`: the first result that is not success, of its calls and
 * of its thread's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CU(name, ...) (((int (*)())dlsym(driver, #name))(__VA_ARGS__))
#define TRY(call) do { int result_ = (call); if (result_) return result_; } while (0)

static void *driver, *context;
static unsigned long long buffer;
static atomic_int ending;
static pthread_t sampler;

static int looks(void) {
    int count, version;
    unsigned long long unused;
    size_t total;
    void *found, *current;
    (void)unused;
    TRY(CU(cuDriverGetVersion, &version));
    TRY(CU(cuDeviceGetCount, &count));
    TRY(CU(cuDeviceTotalMem_v2, &total, 0));
    TRY(CU(cuCtxGetCurrent, &current));
    TRY(CU(cuGetProcAddress_v2, "cuMemAlloc", &found, 12000, 0ULL, NULL));
    return found ? 0 : 999;
}

static int holds(void) {
    size_t nothing, all;
    TRY(CU(cuDevicePrimaryCtxRetain, &context, 0));
    TRY(CU(cuCtxPushCurrent_v2, context));
    TRY(CU(cuMemAlloc_v2, &buffer, (size_t)8 << 20));
    TRY(CU(cuMemGetInfo_v2, &nothing, &all));
    return CU(cuCtxPopCurrent_v2, &context);
}

static void *once(void *result) {
    *(int *)result = looks();
    return NULL;
}

static void *samples(void *unused) {
    while (!ending) {
        if (looks()) abort();
        usleep(1000);
    }
    return unused;
}

static void ends(void) {
    ending = 1;
    pthread_join(sampler, NULL);
}

int InitializeInjection(void) {
    pthread_t thread;
    int first, second = 998;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 0;
    first = CU(cuInit, 0);
    if (!first) first = looks();
    pthread_create(&thread, NULL, once, &second);
    pthread_join(thread, NULL);
    if (!first) first = holds();
    pthread_create(&sampler, NULL, samples, NULL);
    atexit(ends);
    printf("tool %d %d\n", first, second);
    fflush(stdout);
    return 1;
}

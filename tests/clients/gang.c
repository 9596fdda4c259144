/* A CUDA driver program on two devices whose kernels wait for each other on the device, as those of
 * a collective do. It knows nothing of gpushare, and answers one command a line on its standard
 * input.
 *
 *   init             -> init RESULT      a context, a stream and the kernel `meet` on devices 0 and 1
 *   work NS          -> work 0           a thread for each device launches kernels of NS nanoseconds, each of which waits for its peer
 *   count            -> count NUMBER     collectives that are complete: both words have reached it
 *   stop             -> stop RESULT      both launch as many, and all is complete; the first error
 *
 * RESULT is the first CUresult that is not success, as a number. */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/driver.h"

typedef unsigned long long dptr;

static void *contexts[2], *functions[2], *streams[2];
static pthread_t workers[2];
static atomic_int failed;
static atomic_long launched[2], most;
static uint64_t work_ns;
static volatile uint32_t *words;

static int begin_on(int device) {
    void *module;
    TRY(CALL("cuDevicePrimaryCtxRetain", (void **, int))(&contexts[device], device));
    TRY(CALL("cuCtxSetCurrent", (void *))(contexts[device]));
    TRY(CALL("cuStreamCreate", (void **, unsigned))(&streams[device], 1));
    TRY(CALL("cuModuleLoadData", (void **, const void *))(&module, "any image"));
    return CALL("cuModuleGetFunction", (void **, void *, const char *))(&functions[device], module, "meet");
}

static int begin(void) {
    void *host;
    TRY(CALL("cuInit", (unsigned))(0));
    TRY(begin_on(0));
    TRY(begin_on(1));
    /* Portable and mapped: both devices see it. */
    TRY(CALL("cuMemHostAlloc", (void **, size_t, unsigned))(&host, 4096, 3));
    memset(host, 0, 4096);
    words = host;
    return 0;
}

static int meet(int device, uint32_t value) {
    uint64_t ns = work_ns;
    dptr own = (dptr)(uintptr_t)&words[device * 64], peer = (dptr)(uintptr_t)&words[(1 - device) * 64];
    void *parameters[] = {&ns, &own, &peer, &value};
    return CALL("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))(
        functions[device], 1, 1, 1, 1, 1, 1, 0, streams[device], parameters, NULL);
}

static void *work(void *index) {
    int device = (int)(intptr_t)index, none = 0;
    int result = CALL("cuCtxSetCurrent", (void *))(contexts[device]);
    while (!result && launched[device] < most) {
        result = meet(device, (uint32_t)launched[device] + 1);
        launched[device]++;
    }
    if (!result) result = CALL("cuStreamSynchronize", (void *))(streams[device]);
    if (result) atomic_compare_exchange_strong(&failed, &none, result);
    return NULL;
}

static int stop(void) {
    /* No thread is further than a launch beyond what is read here; both go on until they are level. */
    long first = launched[0], second = launched[1];
    most = (first > second ? first : second) + 100;
    for (int i = 0; i < 2; i++) pthread_join(workers[i], NULL);
    return failed;
}

int main(void) {
    char line[256], word[32];
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long one = 0;
        int result = 0;
        if (sscanf(line, "%31s %llu", word, &one) < 1) continue;
#define IS(name) (!strcmp(word, name))
        if (IS("init")) result = begin();
        else if (IS("work")) {
            work_ns = one;
            most = LONG_MAX;
            for (int i = 0; i < 2; i++) pthread_create(&workers[i], NULL, work, (void *)(intptr_t)i);
        } else if (IS("count")) result = (int)(words[0] < words[64] ? words[0] : words[64]);
        else if (IS("stop")) result = stop();
        else result = 998;
        printf("%s %d\n", word, result);
    }
    return 0;
}

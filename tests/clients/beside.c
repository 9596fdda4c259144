/* Streams of one program beside each other. It knows nothing of gpushare.
 *
 *   beside wide STREAMS NS MS    STREAMS threads launch kernels of NS nanoseconds, each in its own stream, and wait for each, for MS
 *                                milliseconds
 *   beside short NS MS           the same by one thread with kernels of 100 us, while a kernel of NS nanoseconds runs in another stream
 *   beside shapes NS MS          kernels of NS nanoseconds are launched for MS milliseconds, each with another grid
 *   beside shape NS MS           the same with one grid
 *
 * It prints its first word, how many kernels are complete, and the first result that is not success. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/driver.h"

#define CU(name, ...) (((int (*)())symbol(#name))(__VA_ARGS__))

static void *context, *function;
static atomic_ulong done;
static atomic_int failed;
static uint64_t each_ns, until;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static int spin(unsigned grid, uint64_t ns, void *stream) {
    void *parameters[] = {&ns};
    return CU(cuLaunchKernel, function, grid, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static int launches(void) {
    void *stream;
    TRY(CU(cuCtxSetCurrent, context));
    TRY(CU(cuStreamCreate, &stream, 1));
    while (now() < until) {
        TRY(spin(1, each_ns, stream));
        TRY(CU(cuStreamSynchronize, stream));
        done++;
    }
    return 0;
}

static void *thread(void *unused) {
    int result = launches();
    if (result) failed = result;
    return unused;
}

static int wide(unsigned streams, uint64_t ns) {
    pthread_t threads[64];
    if (streams > 64) return 1;
    each_ns = ns;
    for (unsigned i = 0; i < streams; i++) TRY(pthread_create(&threads[i], NULL, thread, NULL));
    for (unsigned i = 0; i < streams; i++) pthread_join(threads[i], NULL);
    return failed;
}

static int shapes(uint64_t ns, unsigned vary) {
    void *stream;
    TRY(CU(cuStreamCreate, &stream, 1));
    for (unsigned i = 0; now() < until; i++) {
        TRY(spin(1 + i * vary, ns, stream));
        if (i % 256 == 255) TRY(CU(cuStreamSynchronize, stream));
        done++;
    }
    return CU(cuStreamSynchronize, stream);
}

static int run(char **words) {
    void *module, *other;
    uint64_t number = strtoull(words[1], NULL, 10), ms = strtoull(words[2], NULL, 10);
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return fprintf(stderr, "%s\n", dlerror()), 2;
    TRY(CU(cuInit, 0));
    TRY(CU(cuDevicePrimaryCtxRetain, &context, 0));
    TRY(CU(cuCtxSetCurrent, context));
    TRY(CU(cuModuleLoadData, &module, "any image"));
    TRY(CU(cuModuleGetFunction, &function, module, "spin"));
    TRY(CU(cuStreamCreate, &other, 1));
    if (!strcmp(words[0], "wide")) {
        until = now() + strtoull(words[3], NULL, 10) * 1000000;
        return wide(number, ms);
    }
    until = now() + ms * 1000000;
    if (!strcmp(words[0], "short")) {
        TRY(spin(1, number, other));
        TRY(wide(1, 100000));
        return CU(cuCtxSynchronize);
    }
    return shapes(number, !strcmp(words[0], "shapes"));
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    int result = run(argv + 1);
    printf("%s %lu %d\n", argv[1], done, result);
    return 0;
}

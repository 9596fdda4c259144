/* A thread frees memory of a pool while another one waits for its own stream again and again. A wait
 * of the driver takes a while, because there are many pools, of which the first one gives back what
 * is unused at its beginning. usage: crossed ROUNDS [ordered]: it frees at once, or in its stream's
 * order. After each round the first thread waits too, and nothing is allocated. Prints in how many
 * rounds less memory was free then than at first. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/driver.h"

typedef unsigned long long dptr;
typedef struct { int type, handles; struct { int type, id; } where; void *security; size_t max; unsigned short usage; unsigned char rest[54]; } pool_props;

static void *context, *streams[2];
static atomic_int working, waiting, over, failed;
static int ordered;

static int wait_often(void) {
    TRY(CALL("cuCtxSetCurrent", (void *))(context));
    while (!over) {
        waiting = 0;
        while (!working && !over) sched_yield();
        waiting = 1;
        while (working) TRY(CALL("cuStreamSynchronize", (void *))(streams[1]));
    }
    return 0;
}

static void *other(void *unused) {
    failed = wait_often();
    waiting = 0;
    return unused;
}

static int info(size_t *left) {
    size_t total;
    return CALL("cuMemGetInfo_v2", (size_t *, size_t *))(left, &total);
}

static int release(dptr at) {
    if (ordered) return CALL("cuMemFreeAsync", (dptr, void *))(at, streams[0]);
    return CALL("cuMemFree_v2", (dptr))(at);
}

static int round_of(int number) {
    dptr at[2];
    for (int i = 0; i < 2; i++) TRY(CALL("cuMemAllocAsync", (dptr *, size_t, void *))(&at[i], 1 << 20, streams[0]));
    TRY(CALL("cuStreamSynchronize", (void *))(streams[0]));
    working = 1;
    while (!waiting && !failed) sched_yield();
    TRY(release(at[0]));
    for (volatile int pause = 0; pause < number % 64 * 4096; pause++) {}
    TRY(release(at[1]));
    working = 0;
    while (waiting && !failed) sched_yield();
    TRY(CALL("cuStreamSynchronize", (void *))(streams[0]));
    return failed;
}

int main(int argc, char **argv) {
    pthread_t thread;
    size_t first = 0, left = 0;
    int kept = 0, rounds = argc > 1 ? atoi(argv[1]) : 1;
    ordered = argc > 2;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver || CALL("cuInit", (unsigned))(0) || CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, 0)) return 2;
    if (CALL("cuCtxSetCurrent", (void *))(context)) return 2;
    for (int i = 0; i < 2; i++) if (CALL("cuStreamCreate", (void **, unsigned))(&streams[i], 1)) return 2;
    pool_props props = {.type = 1, .where = {1, 0}};
    void *pool;
    if (CALL("cuDeviceGetDefaultMemPool", (void **, int))(&pool, 0)) return 2;
    for (int i = 0; i < 400; i++) if (CALL("cuMemPoolCreate", (void **, pool_props *))(&pool, &props)) return 2;
    if (info(&first)) return 2;
    pthread_create(&thread, NULL, other, NULL);
    for (int i = 0; i < rounds; i++) {
        int error = round_of(i);
        if (!error) error = info(&left);
        if (error) return fprintf(stderr, "round %d: %d\n", i, error) ? 3 : 3;
        kept += left < first;
    }
    over = 1;
    pthread_join(thread, NULL);
    printf("kept %d\n", kept);
    return failed ? 3 : 0;
}

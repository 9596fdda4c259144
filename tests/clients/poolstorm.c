/* Threads that allocate and free in stream order as fast as they can, each in a stream of its own, in sizes of 1 to 64 MiB.
 * usage: poolstorm THREADS ROUNDS. Prints how often it got memory, was refused, or got any other answer, then what is free after
 * everything was freed, synchronised and trimmed, and the total. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long dptr;
static void *driver, *context;
static int rounds;
static long got, refused, other;

#define CALL(name, types) ((int (*) types)dlsym(driver, name))

static void *work(void *seed) {
    unsigned random = (unsigned)(size_t)seed * 2654435761u + 1;
    void *stream;
    dptr mine[4] = {0};
    CALL("cuCtxSetCurrent", (void *))(context);
    if (CALL("cuStreamCreate", (void **, unsigned))(&stream, 1)) exit(3);
    for (int i = 0; i < rounds; i++) {
        random = random * 1664525u + 1013904223u;
        dptr *at = &mine[random >> 30];
        if (*at) {
            if (CALL("cuMemFreeAsync", (dptr, void *))(*at, stream)) exit(4);
            *at = 0;
        }
        size_t bytes = (((random >> 8) & 63) + 1) << 20;
        int result = CALL("cuMemAllocAsync", (dptr *, size_t, void *))(at, bytes, stream);
        __sync_fetch_and_add(result == 0 ? &got : result == 2 ? &refused : &other, 1);
        if (result) *at = 0;
        if ((random & 0xf0) == 0) CALL("cuStreamSynchronize", (void *))(stream);
    }
    for (int i = 0; i < 4; i++)
        if (mine[i] && CALL("cuMemFreeAsync", (dptr, void *))(mine[i], stream)) exit(5);
    CALL("cuStreamSynchronize", (void *))(stream);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[64];
    int count = argc > 1 ? atoi(argv[1]) : 4;
    void *pool;
    size_t free = 0, total = 0;
    rounds = argc > 2 ? atoi(argv[2]) : 100;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver || CALL("cuInit", (unsigned))(0) || CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, 0)) return 2;
    CALL("cuCtxSetCurrent", (void *))(context);
    for (long i = 0; i < count; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    CALL("cuCtxSynchronize", (void))();
    CALL("cuDeviceGetDefaultMemPool", (void **, int))(&pool, 0);
    CALL("cuMemPoolTrimTo", (void *, size_t))(pool, 0);
    CALL("cuMemGetInfo_v2", (size_t *, size_t *))(&free, &total);
    printf("got %ld refused %ld other %ld free %zu total %zu\n", got, refused, other, free, total);
    fflush(stdout);
    getchar();
    return 0;
}

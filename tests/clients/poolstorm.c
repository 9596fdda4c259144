/* Threads that allocate and free in stream order as fast as they can, each in a stream of its own,
 * in sizes of 1 to 64 MiB. usage: poolstorm THREADS ROUNDS [POOLS [shared|own]]. POOLS are made
 * beside the default one; every second one keeps freed memory, and threads trim and synchronise now
 * and then. With `shared`, every two threads use one stream; with `own`, each its own default
 * stream, which has one name in all. Prints how often it got memory, was refused, or got any other
 * answer; when a line comes, it frees everything, synchronises and trims, and prints the free
 * memory then, and the total. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long dptr;
typedef struct { int type, handles; struct { int type, id; } where; void *security; size_t max; unsigned short usage; unsigned char rest[54]; } pool_props;

static void *driver, *context, *pools[16], *streams[64];
static int rounds, pool_count = 1, shared, own;
static long got, refused, other;
static dptr mine[64][4];

#define CALL(name, types) ((int (*) types)dlsym(driver, name))
/* The same, or its twin for threads' own default streams. */
#define ORDERED(name, types) ((int (*) types)dlsym(driver, own ? name "_ptsz" : name))

static void *work(void *argument) {
    long self = (long)argument;
    unsigned random = (unsigned)self * 2654435761u + 1;
    void *stream = own ? NULL : streams[shared ? self / 2 : self];
    CALL("cuCtxSetCurrent", (void *))(context);
    for (int i = 0; i < rounds; i++) {
        random = random * 1664525u + 1013904223u;
        dptr *at = &mine[self][random >> 30];
        if (*at) {
            int result = ORDERED("cuMemFreeAsync", (dptr, void *))(*at, stream);
            if (result) exit(fprintf(stderr, "a free answers %d\n", result) ? 4 : 4);
            *at = 0;
        }
        size_t bytes = (((random >> 8) & 63) + 1) << 20;
        if (random & 0x4000000) bytes = (random >> 8) & 0xfffff;
        void *pool = pools[(random >> 16) % pool_count];
        int result = pool == pools[0] ? ORDERED("cuMemAllocAsync", (dptr *, size_t, void *))(at, bytes, stream)
                                      : ORDERED("cuMemAllocFromPoolAsync", (dptr *, size_t, void *, void *))(at, bytes, pool, stream);
        __sync_fetch_and_add(result == 0 ? &got : result == 2 ? &refused : &other, 1);
        if (result) *at = 0;
        if ((random & 0xf0) == 0) ORDERED("cuStreamSynchronize", (void *))(stream);
        if (pool_count > 1 && (random & 0x3f00) == 0) CALL("cuMemPoolTrimTo", (void *, size_t))(pool, 32 << 20);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[64];
    long count = argc > 1 ? atoi(argv[1]) : 4;
    pool_props props = {.type = 1, .where = {1, 0}};
    unsigned long long keep = ~0ull;
    size_t free = 0, total = 0;
    rounds = argc > 2 ? atoi(argv[2]) : 100;
    shared = argc > 4 && argv[4][0] == 's';
    own = argc > 4 && argv[4][0] == 'o';
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver || CALL("cuInit", (unsigned))(0) || CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, 0)) return 2;
    CALL("cuCtxSetCurrent", (void *))(context);
    CALL("cuDeviceGetDefaultMemPool", (void **, int))(&pools[0], 0);
    for (; argc > 3 && pool_count <= atoi(argv[3]) && pool_count < 16; pool_count++) {
        if (CALL("cuMemPoolCreate", (void **, pool_props *))(&pools[pool_count], &props)) return 6;
        if (pool_count % 2 && CALL("cuMemPoolSetAttribute", (void *, int, void *))(pools[pool_count], 4, &keep)) return 7;
    }
    for (long i = 0; i < count; i++)
        if (CALL("cuStreamCreate", (void **, unsigned))(&streams[i], 1)) return 3;
    for (long i = 0; i < count; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (long i = 0; i < count; i++) pthread_join(threads[i], NULL);
    printf("got %ld refused %ld other %ld\n", got, refused, other);
    fflush(stdout);
    getchar();
    CALL("cuCtxSynchronize", (void))();
    for (long i = 0; i < count; i++)
        for (int j = 0; j < 4; j++)
            if (mine[i][j] && ORDERED("cuMemFreeAsync", (dptr, void *))(mine[i][j], own ? NULL : streams[shared ? i / 2 : i])) return 5;
    CALL("cuCtxSynchronize", (void))();
    for (int i = 0; i < pool_count; i++) CALL("cuMemPoolTrimTo", (void *, size_t))(pools[i], 0);
    CALL("cuMemGetInfo_v2", (size_t *, size_t *))(&free, &total);
    printf("free %zu total %zu\n", free, total);
    fflush(stdout);
    while (getchar() > 0) {
    }
    return 0;
}

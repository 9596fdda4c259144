/* Threads that run graphs which allocate and free, each its own graphs of 2 to 40 MiB in a stream
 * of its own, as fast as they can; now and then they upload, synchronise and trim. It knows nothing of
 * gpushare. usage: graphstorm THREADS ROUNDS. Prints how often a launch was accepted, was refused,
 * or got any other answer; when a line comes, it waits for everything, trims, and prints the free
 * memory then, and the total. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long dptr;
typedef struct { int type, id; } location;
typedef struct { int type, handles; location where; void *security; size_t max; unsigned short usage; unsigned char rest[54]; } pool_props;
typedef struct { pool_props props; const void *access; size_t count; size_t bytes; dptr at; } alloc_params;

enum { GRAPHS = 4 };
static void *driver, *context;
static int rounds;
static long got, refused, other;

#define CALL(name, types) ((int (*) types)dlsym(driver, name))

static void *graph_of(size_t bytes) {
    void *graph, *exec, *alloc, *freed;
    alloc_params params = {.props = {.type = 1, .where = {1, 0}}, .bytes = bytes};
    if (CALL("cuGraphCreate", (void **, unsigned))(&graph, 0)) exit(3);
    if (CALL("cuGraphAddMemAllocNode", (void **, void *, void **, size_t, alloc_params *))(&alloc, graph, NULL, 0, &params)) exit(4);
    if (CALL("cuGraphAddMemFreeNode", (void **, void *, void **, size_t, dptr))(&freed, graph, &alloc, 1, params.at)) exit(5);
    if (CALL("cuGraphInstantiateWithFlags", (void **, void *, unsigned long long))(&exec, graph, 0)) exit(6);
    return exec;
}

static void *work(void *argument) {
    unsigned random = (unsigned)(size_t)argument * 2654435761u + 1;
    void *stream, *graphs[GRAPHS];
    CALL("cuCtxSetCurrent", (void *))(context);
    if (CALL("cuStreamCreate", (void **, unsigned))(&stream, 1)) exit(7);
    for (int i = 0; i < GRAPHS; i++) {
        random = random * 1664525u + 1013904223u;
        graphs[i] = graph_of((((random >> 8) % 20) + 1) << 21);
    }
    for (int i = 0; i < rounds; i++) {
        random = random * 1664525u + 1013904223u;
        if ((random & 0x70000) == 0) CALL("cuGraphUpload", (void *, void *))(graphs[random >> 20 & 3], stream);
        int result = CALL("cuGraphLaunch", (void *, void *))(graphs[random >> 30], stream);
        __sync_fetch_and_add(result == 0 ? &got : result == 2 ? &refused : &other, 1);
        if ((random & 0xf0) == 0) CALL("cuStreamSynchronize", (void *))(stream);
        if ((random & 0x1f00) == 0) CALL("cuDeviceGraphMemTrim", (int))(0);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[64];
    long count = argc > 1 ? atoi(argv[1]) : 4;
    size_t free = 0, total = 0;
    rounds = argc > 2 ? atoi(argv[2]) : 100;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver || CALL("cuInit", (unsigned))(0) || CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, 0)) return 2;
    CALL("cuCtxSetCurrent", (void *))(context);
    for (long i = 0; i < count; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (long i = 0; i < count; i++) pthread_join(threads[i], NULL);
    printf("got %ld refused %ld other %ld\n", got, refused, other);
    fflush(stdout);
    getchar();
    CALL("cuCtxSynchronize", (void))();
    CALL("cuDeviceGraphMemTrim", (int))(0);
    CALL("cuMemGetInfo_v2", (size_t *, size_t *))(&free, &total);
    printf("free %zu total %zu\n", free, total);
    fflush(stdout);
    while (getchar() > 0) {
    }
    return 0;
}

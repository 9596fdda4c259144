/* A CUDA driver program with green contexts that executes commands from its standard input, with
 * one answer a line. It knows nothing of gpushare. Each green context has a thread in which alone
 * it is current, and a stream made by cuGreenCtxStreamCreate.
 *
 *   init DEVICE          -> init RESULT             cuInit, the primary context of the device, current in the main thread
 *   bare DEVICE          -> bare RESULT             cuInit and no context: green ones retain the primary by themselves
 *   make N               -> make RESULT             green context N, 0 to 7, its thread and its stream
 *   plain N              -> plain RESULT            the same without the flag for a default stream
 *   launch N COUNT NS    -> launch RESULT           kernels in its stream, by the main thread in the primary context
 *   own N COUNT NS       -> own RESULT              kernels in its default stream, by its thread
 *   made N COUNT NS      -> made RESULT             kernels in a blocking stream that its thread makes by cuStreamCreate, once
 *   post N NS            -> post 0                  its thread launches one kernel in its default stream and waits for its context
 *   posted N             -> posted DONE             whether that is complete
 *   query N              -> query RESULT            of its stream
 *   queried N            -> queried RESULT          of its default stream, by its thread
 *   alloc N BYTES        -> alloc RESULT            by its thread
 *   free                 -> free RESULT             the latest allocation, by the main thread
 *   pool, unpool         -> pool RESULT             makes a pool of the device's memory, destroys it
 *   ordered N BYTES      -> ordered RESULT          memory of the pool, in its stream, which is awaited, then freed in it
 *   capture N            -> capture RESULT          begins a relaxed capture in its stream
 *   captured N           -> captured RESULT         ends it
 *   drop N               -> drop RESULT             the thread lets it go, it is destroyed, then its streams
 *   last N               -> last RESULT             the same, its streams first: the primary context may end with it
 *   churn COUNT NS       -> churn RESULT            COUNT times: green context 7 made, a kernel in each of its streams, dropped at once
 *   sync                 -> sync RESULT             the main thread's context
 *   retain, release      -> retain RESULT           the primary context, by the main thread
 *   active               -> active ACTIVE           whether there is a primary context
 *
 * RESULT is the first CUresult that is not success, as a number. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/driver.h"

#define CU(name, ...) (((int (*)())symbol(#name))(__VA_ARGS__))
#define SM 1
#define NON_BLOCKING 1
#define CONTEXT_IS_DESTROYED 709

typedef struct { unsigned type; unsigned char own[92]; unsigned char part[40]; void *next; } resource;

typedef struct green {
    void *green, *context, *stream, *made;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int (*work)(struct green *);
    int answer;
    uint64_t one, two;
    atomic_int posted;
} green;

static void *primary, *function, *pool;
static green greens[8];
static int device;
static unsigned long long address;

static int spin(uint64_t ns, void *stream) {
    void *parameters[] = {&ns};
    return CU(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static int load(void) {
    void *module;
    if (function) return 0;
    TRY(CU(cuModuleLoadData, &module, "any image"));
    return CU(cuModuleGetFunction, &function, module, "spin");
}

static int begin(void) {
    TRY(CU(cuDevicePrimaryCtxRetain, &primary, device));
    TRY(CU(cuCtxSetCurrent, primary));
    return load();
}

/* The operations of a thread on the green context that is current in it. */
static int enters(green *of) {
    TRY(CU(cuCtxSetCurrent, of->context));
    return load();
}
static int leaves(green *of) { return of->one = 0, CU(cuCtxSetCurrent, NULL); }
static int launches(green *of) {
    for (uint64_t i = 0; i < of->one; i++) TRY(spin(of->two, NULL));
    return 0;
}
static int launches_in_made(green *of) {
    if (!of->made) TRY(CU(cuStreamCreate, &of->made, 0));
    for (uint64_t i = 0; i < of->one; i++) TRY(spin(of->two, of->made));
    return 0;
}
static int asks(green *of) { return (void)of, CU(cuStreamQuery, NULL); }
static int allocates(green *of) { return CU(cuMemAlloc_v2, &address, (size_t)of->one); }
static int posts(green *of) {
    int result = spin(of->one, NULL);
    if (!result) result = CU(cuCtxSynchronize);
    of->posted = result ? -result : 1;
    return 0;
}

static void *follow(void *argument) {
    green *of = argument;
    pthread_mutex_lock(&of->lock);
    for (int ends = 0; !ends;) {
        while (!of->work) pthread_cond_wait(&of->changed, &of->lock);
        int (*work)(green *) = of->work;
        ends = work == leaves;
        int posting = work == posts;
        if (posting) of->answer = 0, of->work = NULL, pthread_cond_broadcast(&of->changed);
        pthread_mutex_unlock(&of->lock);
        int answer = work(of);
        pthread_mutex_lock(&of->lock);
        if (!posting) of->answer = answer, of->work = NULL, pthread_cond_broadcast(&of->changed);
    }
    pthread_mutex_unlock(&of->lock);
    return NULL;
}

/* Has the thread of a green context do something. */
static int tell(green *of, int (*work)(green *), uint64_t one, uint64_t two) {
    pthread_mutex_lock(&of->lock);
    of->one = one, of->two = two, of->work = work;
    pthread_cond_broadcast(&of->changed);
    while (of->work) pthread_cond_wait(&of->changed, &of->lock);
    int answer = of->answer;
    pthread_mutex_unlock(&of->lock);
    return answer;
}

static int make(green *of, unsigned flags) {
    resource whole, part;
    void *description;
    unsigned groups = 1;
    memset(of, 0, sizeof *of);
    TRY(CU(cuDeviceGetDevResource, device, &whole, SM));
    TRY(CU(cuDevSmResourceSplitByCount, &part, &groups, &whole, NULL, 0, 8));
    TRY(CU(cuDevResourceGenerateDesc, &description, &part, 1));
    TRY(CU(cuGreenCtxCreate, &of->green, description, device, flags));
    TRY(CU(cuCtxFromGreenCtx, &of->context, of->green));
    TRY(CU(cuGreenCtxStreamCreate, &of->stream, of->green, NON_BLOCKING, 0));
    pthread_mutex_init(&of->lock, NULL);
    pthread_cond_init(&of->changed, NULL);
    pthread_create(&of->thread, NULL, follow, of);
    return tell(of, enters, 0, 0);
}

/* A driver before 13.1 does not destroy the streams of what is destroyed. */
static int detached_goes(void *stream) {
    int result = CU(cuStreamDestroy_v2, stream), version = 0;
    TRY(CU(cuDriverGetVersion, &version));
    return version < 13010 && result == CONTEXT_IS_DESTROYED ? 0 : result;
}

static int drop(green *of) {
    TRY(tell(of, leaves, 0, 0));
    pthread_join(of->thread, NULL);
    TRY(CU(cuGreenCtxDestroy, of->green));
    if (of->made) TRY(detached_goes(of->made));
    return detached_goes(of->stream);
}

static int last(green *of) {
    TRY(tell(of, leaves, 0, 0));
    pthread_join(of->thread, NULL);
    TRY(CU(cuCtxPushCurrent_v2, of->context));
    if (of->made) TRY(CU(cuStreamDestroy_v2, of->made));
    TRY(CU(cuStreamDestroy_v2, of->stream));
    TRY(CU(cuCtxPopCurrent_v2, &of->context));
    function = NULL;
    return CU(cuGreenCtxDestroy, of->green);
}

static int make_pool(void) {
    struct { int type, handles, location, id; char rest[72]; } props = {.type = 1, .location = 1, .id = device};
    return CU(cuMemPoolCreate, &pool, &props);
}

static int ordered(green *of, size_t bytes) {
    unsigned long long at;
    TRY(CU(cuMemAllocFromPoolAsync, &at, bytes, pool, of->stream));
    TRY(CU(cuStreamSynchronize, of->stream));
    return CU(cuMemFreeAsync, at, of->stream);
}

static int launch(green *of, uint64_t count, uint64_t ns) {
    for (uint64_t i = 0; i < count; i++) TRY(spin(ns, of->stream));
    return 0;
}

static int churn(uint64_t count, uint64_t ns) {
    for (uint64_t i = 0; i < count; i++) {
        green *of = &greens[7];
        TRY(make(of, 1));
        TRY(spin(ns, of->stream));
        TRY(tell(of, launches, 1, ns));
        TRY(tell(of, launches_in_made, 1, ns));
        TRY(drop(of));
    }
    return 0;
}

int main(void) {
    char line[256], word[32];
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return fprintf(stderr, "%s\n", dlerror()), 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long one = 0, two = 0, three = 0;
        int result = 0;
        if (sscanf(line, "%31s %llu %llu %llu", word, &one, &two, &three) < 1) continue;
#define IS(name) (!strcmp(word, name))
        green *of = &greens[one % 8];
        if (IS("init") || IS("bare")) {
            device = (int)one;
            result = CU(cuInit, 0);
            if (!result && IS("init")) result = begin();
        } else if (IS("make")) result = make(of, 1);
        else if (IS("plain")) result = make(of, 0);
        else if (IS("launch")) result = launch(of, two, three);
        else if (IS("own")) result = tell(of, launches, two, three);
        else if (IS("made")) result = tell(of, launches_in_made, two, three);
        else if (IS("post")) {
            of->posted = 0;
            result = tell(of, posts, two, 0);
        }
        else if (IS("posted")) result = of->posted;
        else if (IS("query")) result = CU(cuStreamQuery, of->stream);
        else if (IS("queried")) result = tell(of, asks, 0, 0);
        else if (IS("alloc")) result = tell(of, allocates, two, 0);
        else if (IS("free")) result = CU(cuMemFree_v2, address);
        else if (IS("pool")) result = make_pool();
        else if (IS("unpool")) result = CU(cuMemPoolDestroy, pool);
        else if (IS("ordered")) result = ordered(of, two);
        else if (IS("capture")) result = CU(cuStreamBeginCapture_v2, of->stream, 2);
        else if (IS("captured")) {
            void *graph = NULL;
            result = CU(cuStreamEndCapture, of->stream, &graph);
        } else if (IS("last")) result = last(of);
        else if (IS("drop")) result = drop(of);
        else if (IS("churn")) result = churn(one, two);
        else if (IS("sync")) result = CU(cuCtxSynchronize);
        else if (IS("retain")) result = begin();
        else if (IS("release")) result = CU(cuDevicePrimaryCtxRelease_v2, device);
        else if (IS("active")) {
            unsigned flags;
            CU(cuDevicePrimaryCtxGetState, device, &flags, &result);
        } else result = 998;
        printf("%s %d\n", word, result);
    }
    return 0;
}

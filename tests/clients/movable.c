/* A CUDA driver program that allocates, fills, checks and frees memory while it answers one command a
 * line on its standard input. It knows nothing of gpushare. I is a slot, 0 to 15.
 *
 *   init [MODE]       -> init RESULT        cuInit, device 0 and its primary context, or with 1 a context of its own
 *   alloc I BYTES     -> alloc RESULT
 *   fill I SEED       -> fill RESULT        a pattern of SEED, by a copy from the host
 *   set I VALUE       -> set RESULT         32-bit VALUEs, by a kernel
 *   check I SEED      -> check WRONG        bytes that are not the pattern's, or 1000000000 and the driver's error
 *   free I            -> free RESULT
 *   later I           -> later RESULT       cuMemFreeAsync in stream 1
 *   same I            -> same SAME          whether the slot has the address that it had first
 *   range I OFFSET    -> range OFFSET SIZE  cuMemGetAddressRange: how far before that the allocation begins, and its size
 *   about I           -> about CONTEXT START SIZE SYNC LEGACY   attributes of a pointer in its middle: 1 if as of plain memory
 *   wait I            -> wait RESULT        SYNC_MEMOPS on
 *   refuses I         -> refuses A B C D E F    cuMemUnmap, cuMemRetainAllocationHandle, cuMemSetAccess, cuMemAddressFree,
 *                                           cuIpcGetMemHandle, cuMemGetHandleForAddressRange
 *   begin MODE, end   -> begin RESULT       a capture of stream 1
 *   graph I VALUE     -> graph RESULT       captures a kernel that sets slot I to VALUEs
 *   launch            -> launch RESULT      that graph, and waits
 *   storm N           -> storm 0            N threads allocate, copy, launch, capture, check and free at random
 *   state             -> state CALLS WRONG RESULT   what they have done, found wrong, and the first error
 *   calm              -> calm WRONG RESULT  they have stopped
 *   end of a context:
 *   destroy           -> destroy RESULT     the context, with all that is in it
 *   fault             -> fault RESULT       a copy to slot 0 once it was freed */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long dptr;

static void *driver, *context, *kernel, *stream, *exec;
static dptr slots[16], firsts[16];
static size_t sizes[16];
static int own_context;

static void *symbol(const char *name) {
    void *found = dlsym(driver, name);
    if (!found) {
        fprintf(stderr, "no %s\n", name);
        exit(2);
    }
    return found;
}
#define CALL(name, types) ((int (*) types)symbol(name))
#define TRY(call) do { int result_ = (call); if (result_) return result_; } while (0)

static int current(void) { return CALL("cuCtxSetCurrent", (void *))(context); }

static int begin(int own) {
    int device;
    void *module;
    own_context = own;
    TRY(CALL("cuInit", (unsigned))(0));
    TRY(CALL("cuDeviceGet", (int *, int))(&device, 0));
    if (own) TRY(CALL("cuCtxCreate_v2", (void **, unsigned, int))(&context, 0, device));
    else TRY(CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, device));
    TRY(current());
    TRY(CALL("cuStreamCreate", (void **, unsigned))(&stream, 1));
    TRY(CALL("cuModuleLoadData", (void **, const void *))(&module, "any image"));
    return CALL("cuModuleGetFunction", (void **, void *, const char *))(&kernel, module, "fill");
}

static int set(dptr at, uint64_t count, uint32_t value, void *in) {
    void *parameters[] = {&at, &count, &value};
    return CALL("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                                   void **))(kernel, 1, 1, 1, 1, 1, 1, 0, in, parameters, NULL);
}

/* Every eighth byte differs by its place, so that pieces in a wrong order show. */
static void pattern(unsigned char *bytes, size_t count, uint64_t seed) {
    for (size_t i = 0; i < count; i += 8) {
        uint64_t word = (seed + 1) * 0x9E3779B97F4A7C15ull + i;
        memcpy(bytes + i, &word, count - i < 8 ? count - i : 8);
    }
}

static int fill(dptr at, size_t count, uint64_t seed) {
    unsigned char *bytes = malloc(count);
    pattern(bytes, count, seed);
    int result = CALL("cuMemcpyHtoD_v2", (dptr, const void *, size_t))(at, bytes, count);
    free(bytes);
    /* The copy may end later, and the other streams do not wait for it. */
    return result ? result : CALL("cuStreamSynchronize", (void *))(NULL);
}

/* Bytes that differ from the pattern, or with `value` from 32-bit values. */
static long check(dptr at, size_t count, uint64_t seed, const uint32_t *value, int *error) {
    unsigned char *bytes = calloc(1, count), *right = malloc(count);
    long wrong = 0;
    *error = CALL("cuMemcpyDtoH_v2", (void *, dptr, size_t))(bytes, at, count);
    if (value) for (size_t i = 0; i + 4 <= count; i += 4) memcpy(right + i, value, 4);
    else pattern(right, count, seed);
    if (!*error && memcmp(bytes, right, count)) for (size_t i = 0; i < count; i++) wrong += bytes[i] != right[i];
    free(bytes);
    free(right);
    return wrong;
}

/* Threads at random. */
static pthread_t workers[16];
static int worker_count;
static atomic_int stopping, failed;
static atomic_long done, wrong;

struct mine { dptr at; size_t size; uint64_t seed; uint32_t value; int by_value; };

static int graph_of(dptr at, uint64_t count, uint32_t value, void *in, void **made) {
    void *graph;
    TRY(CALL("cuStreamBeginCapture_v2", (void *, int))(in, 2));
    TRY(set(at, count, value, in));
    TRY(CALL("cuStreamEndCapture", (void *, void **))(in, &graph));
    TRY(CALL("cuGraphInstantiateWithFlags", (void **, void *, unsigned long long))(made, graph, 0));
    return CALL("cuGraphDestroy", (void *))(graph);
}

static uint64_t next(uint64_t *seed) {
    *seed = *seed * 6364136223846793005ull + 1;
    return *seed >> 33;
}

static int one(struct mine *own, uint64_t *seed, void *in) {
    struct mine *it = &own[next(seed) % 3];
    int error = 0;
    if (!it->at) {
        it->size = ((next(seed) % 8 + 1) << 20) - (next(seed) % 3) * 4;
        TRY(CALL("cuMemAlloc_v2", (dptr *, size_t))(&it->at, it->size));
        it->by_value = 0;
        it->seed = next(seed);
        return fill(it->at, it->size, it->seed);
    }
    switch (next(seed) % 8) {
    case 0:
        wrong += check(it->at, it->size, it->seed, it->by_value ? &it->value : NULL, &error);
        TRY(error);
        TRY(CALL("cuMemFree_v2", (dptr))(it->at));
        it->at = 0;
        return 0;
    case 1:
        it->value = next(seed);
        it->by_value = 1;
        TRY(set(it->at, it->size / 4, it->value, in));
        return CALL("cuStreamSynchronize", (void *))(in);
    case 2:
        it->value = next(seed);
        it->by_value = 1;
        TRY(CALL("cuMemsetD32_v2", (dptr, unsigned, size_t))(it->at, it->value, it->size / 4));
        /* The other streams do not wait for the legacy one. */
        return CALL("cuStreamSynchronize", (void *))(NULL);
    case 3:
        it->by_value = 0;
        it->seed = next(seed);
        return fill(it->at, it->size, it->seed);
    case 4: {
        void *graph;
        it->value = next(seed);
        it->by_value = 1;
        TRY(graph_of(it->at, it->size / 4, it->value, in, &graph));
        TRY(CALL("cuGraphLaunch", (void *, void *))(graph, in));
        TRY(CALL("cuStreamSynchronize", (void *))(in));
        return CALL("cuGraphExecDestroy", (void *))(graph);
    }
    default:
        wrong += check(it->at, it->size, it->seed, it->by_value ? &it->value : NULL, &error);
        return error;
    }
}

static void *work(void *number) {
    struct mine own[3] = {{0}};
    uint64_t seed = (uintptr_t)number + 1;
    void *in;
    int error = current();
    if (!error) error = CALL("cuStreamCreate", (void **, unsigned))(&in, 1);
    while (!error && !stopping && !failed) {
        error = one(own, &seed, in);
        done++;
    }
    for (int i = 0; i < 3 && !error; i++) {
        if (!own[i].at) continue;
        wrong += check(own[i].at, own[i].size, own[i].seed, own[i].by_value ? &own[i].value : NULL, &error);
        if (!error) error = CALL("cuMemFree_v2", (dptr))(own[i].at);
    }
    if (error) failed = error;
    return NULL;
}

static void about(int i) {
    dptr middle = slots[i] + sizes[i] / 2, start = 0;
    void *of = NULL;
    size_t size = 0;
    int sync = 0, legacy = 1;
    int (*ask)(void *, int, dptr) = (int (*)(void *, int, dptr))symbol("cuPointerGetAttribute");
    int list[5] = {1, 11, 12, 6, 10};
    void *places[5] = {&of, &start, &size, &sync, &legacy};
    int single = ask(&of, 1, middle) || of != context || ask(&start, 11, middle) || start != slots[i] || ask(&size, 12, middle)
                 || size != sizes[i];
    of = NULL, start = 0, size = 0;
    int result = CALL("cuPointerGetAttributes", (unsigned, int *, void **, dptr))(5, list, places, middle);
    printf("about %d %d %d %d %d\n", !result && !single && of == context, start == slots[i], size == sizes[i], sync, legacy);
}

static void refuses(int i) {
    struct { int type, id; unsigned flags; } access = {1, 0, 3};
    unsigned long long handle = 0;
    char ipc[64];
    printf("refuses %d %d %d %d %d %d\n", CALL("cuMemUnmap", (dptr, size_t))(slots[i], sizes[i]),
           CALL("cuMemRetainAllocationHandle", (void *, void *))(&handle, (void *)(uintptr_t)slots[i]),
           CALL("cuMemSetAccess", (dptr, size_t, void *, size_t))(slots[i], sizes[i], &access, 1),
           CALL("cuMemAddressFree", (dptr, size_t))(slots[i], sizes[i]),
           CALL("cuIpcGetMemHandle", (void *, dptr))(ipc, slots[i]),
           CALL("cuMemGetHandleForAddressRange", (void *, dptr, size_t, int, unsigned long long))(&handle, slots[i], sizes[i], 1, 0));
}

int main(void) {
    char line[256], name[32];
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 3;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long a = 0, b = 0;
        int error = 0;
        if (sscanf(line, "%31s %llu %llu", name, &a, &b) < 1) continue;
        int i = a % 16;
        if (!strcmp(name, "init")) printf("init %d\n", begin(a));
        else if (!strcmp(name, "alloc")) {
            sizes[i] = b;
            int result = CALL("cuMemAlloc_v2", (dptr *, size_t))(&slots[i], b);
            firsts[i] = slots[i];
            printf("alloc %d\n", result);
        } else if (!strcmp(name, "fill")) printf("fill %d\n", fill(slots[i], sizes[i], b));
        else if (!strcmp(name, "set")) {
            int result = set(slots[i], sizes[i] / 4, b, stream);
            printf("set %d\n", result);
        } else if (!strcmp(name, "check")) {
            long bad = check(slots[i], sizes[i], b, NULL, &error);
            printf("check %ld\n", error ? 1000000000L + error : bad);
        } else if (!strcmp(name, "values")) {
            uint32_t value = b;
            long bad = check(slots[i], sizes[i], 0, &value, &error);
            printf("values %ld\n", error ? 1000000000L + error : bad);
        } else if (!strcmp(name, "free")) printf("free %d\n", CALL("cuMemFree_v2", (dptr))(slots[i]));
        else if (!strcmp(name, "later")) printf("later %d\n", CALL("cuMemFreeAsync", (dptr, void *))(slots[i], stream));
        else if (!strcmp(name, "same")) printf("same %d\n", slots[i] == firsts[i]);
        else if (!strcmp(name, "range")) {
            dptr base = 0;
            size_t size = 0;
            error = CALL("cuMemGetAddressRange_v2", (dptr *, size_t *, dptr))(&base, &size, slots[i] + b);
            printf("range %llu %zu\n", error ? 1000000000ull + error : slots[i] + b - base, size);
        } else if (!strcmp(name, "about")) about(i);
        else if (!strcmp(name, "wait")) {
            int on = 1;
            printf("wait %d\n", CALL("cuPointerSetAttribute", (const void *, int, dptr))(&on, 6, slots[i]));
        } else if (!strcmp(name, "refuses")) refuses(i);
        else if (!strcmp(name, "begin")) printf("begin %d\n", CALL("cuStreamBeginCapture_v2", (void *, int))(stream, a));
        else if (!strcmp(name, "end")) {
            void *graph;
            printf("end %d\n", CALL("cuStreamEndCapture", (void *, void **))(stream, &graph));
        } else if (!strcmp(name, "graph")) printf("graph %d\n", graph_of(slots[i], sizes[i] / 4, b, stream, &exec));
        else if (!strcmp(name, "launch")) {
            int result = CALL("cuGraphLaunch", (void *, void *))(exec, stream);
            if (!result) result = CALL("cuStreamSynchronize", (void *))(stream);
            printf("launch %d\n", result);
        } else if (!strcmp(name, "storm")) {
            stopping = 0;
            failed = 0;
            worker_count = a;
            for (int n = 0; n < worker_count; n++) pthread_create(&workers[n], NULL, work, (void *)(uintptr_t)n);
            puts("storm 0");
        } else if (!strcmp(name, "state")) printf("state %ld %ld %d\n", done, wrong, failed);
        else if (!strcmp(name, "calm")) {
            stopping = 1;
            for (int n = 0; n < worker_count; n++) pthread_join(workers[n], NULL);
            printf("calm %ld %d\n", wrong, failed);
        } else if (!strcmp(name, "destroy")) printf("destroy %d\n", CALL("cuCtxDestroy_v2", (void *))(context));
        else return 4;
    }
    return 0;
}

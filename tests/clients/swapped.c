/* A CUDA driver program that prepares objects of all kinds once and uses them later: a stream, an event, a graph, pinned
 * memory. It knows nothing of gpushare and answers one command a line.
 *
 *   init              -> init RESULT        device 0, its primary context, a stream, a module
 *   alloc BYTES       -> alloc RESULT       device memory, and a little pinned host memory
 *   prepare VALUE     -> prepare RESULT     pinned host memory of that size, and captures a graph: a kernel that sets all to
 *                                           VALUEs, a copy of it to the pinned memory; records an event behind a first kernel
 *   replay            -> replay RESULT      launches the graph in the stream, and an event behind it, and waits for that
 *   copied VALUE      -> copied WRONG       32-bit values in the pinned memory that are not VALUE
 *   more BYTES        -> more RESULT        a second allocation, filled with ones
 *   fill VALUE        -> fill RESULT        memset of the first allocation
 *   check VALUE       -> check WRONG        values of it that are not VALUE, or 1000000000 and the driver's error
 *   capture           -> capture RESULT     begins a capture and leaves it open
 *   end               -> end RESULT         ends it
 *   free              -> free RESULT        the first allocation
 *   fault             -> fault RESULT       a kernel writes to freed memory: the context fails */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/driver.h"

typedef unsigned long long dptr;

static void *kernel, *stream, *event, *exec;
static dptr memory, second;
static size_t size;
static uint32_t *pinned, *piece;

/* Memory is checked a piece at a time: fresh pages for a copy of all of it cost more than the copies. */
enum { PIECE = 4 << 20 };

static int init(void) {
    int device;
    void *context, *module;
    TRY(CALL("cuInit", (unsigned))(0));
    TRY(CALL("cuDeviceGet", (int *, int))(&device, 0));
    TRY(CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, device));
    TRY(CALL("cuCtxSetCurrent", (void *))(context));
    TRY(CALL("cuStreamCreate", (void **, unsigned))(&stream, 1));
    TRY(CALL("cuEventCreate", (void **, unsigned))(&event, 0));
    TRY(CALL("cuModuleLoadData", (void **, const void *))(&module, "any image"));
    return CALL("cuModuleGetFunction", (void **, void *, const char *))(&kernel, module, "fill");
}

static int set(uint32_t value) {
    uint64_t count = size / 4;
    void *parameters[] = {&memory, &count, &value};
    return CALL("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                                   void **))(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static int alloc(size_t bytes) {
    size = bytes;
    TRY(CALL("cuMemAlloc_v2", (dptr *, size_t))(&memory, bytes));
    return CALL("cuMemAllocHost_v2", (void **, size_t))((void **)&piece, bytes < PIECE ? bytes : PIECE);
}

static int prepare(uint32_t value) {
    void *graph;
    TRY(CALL("cuMemAllocHost_v2", (void **, size_t))((void **)&pinned, size));
    TRY(set(0));
    TRY(CALL("cuEventRecord", (void *, void *))(event, stream));
    TRY(CALL("cuStreamBeginCapture_v2", (void *, int))(stream, 2));
    TRY(set(value));
    TRY(CALL("cuMemcpyDtoHAsync_v2", (void *, dptr, size_t, void *))(pinned, memory, size, stream));
    TRY(CALL("cuStreamEndCapture", (void *, void **))(stream, &graph));
    TRY(CALL("cuGraphInstantiateWithFlags", (void **, void *, unsigned long long))(&exec, graph, 0));
    return CALL("cuGraphDestroy", (void *))(graph);
}

static int replay(void) {
    TRY(CALL("cuEventSynchronize", (void *))(event));
    TRY(CALL("cuGraphLaunch", (void *, void *))(exec, stream));
    TRY(CALL("cuEventRecord", (void *, void *))(event, stream));
    return CALL("cuEventSynchronize", (void *))(event);
}

static long differ(const uint32_t *values, size_t bytes, uint32_t value) {
    long wrong = 0;
    for (size_t i = 0; i < bytes / 4; i++) wrong += values[i] != value;
    return wrong;
}

static int fill(uint32_t value) {
    TRY(CALL("cuMemsetD32_v2", (dptr, unsigned, size_t))(memory, value, size / 4));
    return CALL("cuStreamSynchronize", (void *))(NULL);
}

static long check(uint32_t value) {
    long wrong = 0;
    for (size_t done = 0; done < size; done += PIECE) {
        size_t some = size - done < PIECE ? size - done : PIECE;
        memset(piece, ~value, some);
        int error = CALL("cuMemcpyDtoH_v2", (void *, dptr, size_t))(piece, memory + done, some);
        if (error) return 1000000000L + error;
        wrong += differ(piece, some, value);
    }
    return wrong;
}

static int more(size_t bytes) {
    TRY(CALL("cuMemAlloc_v2", (dptr *, size_t))(&second, bytes));
    TRY(CALL("cuMemsetD32_v2", (dptr, unsigned, size_t))(second, 1, bytes / 4));
    return CALL("cuStreamSynchronize", (void *))(NULL);
}

static int fault(void) {
    uint64_t count = 1024;
    uint32_t value = 7;
    dptr at;
    void *parameters[] = {&at, &count, &value};
    TRY(CALL("cuMemAlloc_v2", (dptr *, size_t))(&at, 4 << 20));
    TRY(CALL("cuMemFree_v2", (dptr))(at));
    TRY(CALL("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                                void **))(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    return CALL("cuStreamSynchronize", (void *))(stream);
}

int main(void) {
    char line[256], name[32];
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 3;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long a = 0;
        void *graph;
        if (sscanf(line, "%31s %llu", name, &a) < 1) continue;
        if (!strcmp(name, "init")) printf("init %d\n", init());
        else if (!strcmp(name, "alloc")) printf("alloc %d\n", alloc(a));
        else if (!strcmp(name, "prepare")) printf("prepare %d\n", prepare(a));
        else if (!strcmp(name, "replay")) printf("replay %d\n", replay());
        else if (!strcmp(name, "copied")) printf("copied %ld\n", differ(pinned, size, a));
        else if (!strcmp(name, "more")) printf("more %d\n", more(a));
        else if (!strcmp(name, "fill")) printf("fill %d\n", fill(a));
        else if (!strcmp(name, "check")) printf("check %ld\n", check(a));
        else if (!strcmp(name, "capture")) printf("capture %d\n", CALL("cuStreamBeginCapture_v2", (void *, int))(stream, 0));
        else if (!strcmp(name, "end")) printf("end %d\n", CALL("cuStreamEndCapture", (void *, void **))(stream, &graph));
        else if (!strcmp(name, "fault")) printf("fault %d\n", fault());
        else if (!strcmp(name, "free")) printf("free %d\n", CALL("cuMemFree_v2", (dptr))(memory));
        else return 4;
    }
    return 0;
}

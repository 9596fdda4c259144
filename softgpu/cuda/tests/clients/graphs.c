/* Graph memory. */
#include "cu.h"

result cuStreamBeginCapture_v2(handle, int), cuStreamEndCapture(handle, handle *), cuGraphInstantiateWithFlags(handle *, handle, unsigned long long);
result cuGraphLaunch(handle, handle), cuGraphExecDestroy(handle), cuGraphDestroy(handle);
result cuDeviceGetGraphMemAttribute(int, int, void *), cuDeviceSetGraphMemAttribute(int, int, void *), cuDeviceGraphMemTrim(int);
enum { USED, USED_HIGH, RESERVED, RESERVED_HIGH };
enum { STEP = 32 * MIB };

static unsigned long long of(int attribute) {
    unsigned long long value = 0;
    DO(cuDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
}

/* A graph that allocates, fills, copies out and, optionally, frees. */
static handle graph(handle stream, size_t bytes, dptr *at, void *out, int frees) {
    handle graph, exec;
    DO(cuStreamBeginCapture_v2(stream, 2));
    DO(cuMemAllocAsync(at, bytes, stream));
    DO(cuMemsetD8Async(*at, 0x3c, bytes, stream));
    DO(cuMemcpyDtoHAsync_v2(out, *at, bytes, stream));
    if (frees)
        DO(cuMemFreeAsync(*at, stream));
    DO(cuStreamEndCapture(stream, &graph));
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    DO(cuGraphDestroy(graph));
    return exec;
}

static void launches(void) {
    start();
    handle stream;
    dptr at;
    size_t bytes = 5 * MIB, before;
    unsigned char *out;
    DO(cuStreamCreate(&stream, 1));
    DO(cuMemHostAlloc((void **)&out, bytes, 0));
    handle exec = graph(stream, bytes, &at, out, 1);
    before = settled();
    TRUE(of(RESERVED) == 0); /* an address without physical memory */
    IS(INVALID_VALUE, cuMemFree_v2(at));
    for (int n = 0; n < 3; n++) {
        memset(out, 0, bytes);
        DO(cuGraphLaunch(exec, stream));
        DO(cuStreamSynchronize(stream));
        TRUE(out[0] == 0x3c && out[bytes - 1] == 0x3c);
        TRUE(of(USED) == STEP && of(RESERVED) == STEP && settled() == before - STEP);
    }
    TRUE(of(USED_HIGH) == STEP);
    dptr other;
    handle second = graph(stream, bytes, &other, out, 1);
    DO(cuGraphLaunch(second, stream)); /* uses memory that the first graph freed */
    DO(cuStreamSynchronize(stream));
    TRUE(other != at && of(USED) == STEP && of(RESERVED) == STEP);
    DO(cuDeviceGraphMemTrim(0));
    TRUE(of(USED) == 0 && of(RESERVED) == 0 && of(RESERVED_HIGH) == STEP && settled() == before);
    unsigned long long value = 1;
    IS(INVALID_VALUE, cuDeviceSetGraphMemAttribute(0, RESERVED_HIGH, &value));
    value = 0;
    DO(cuDeviceSetGraphMemAttribute(0, RESERVED_HIGH, &value));
    TRUE(of(RESERVED_HIGH) == 0);
    DO(cuGraphExecDestroy(exec));
    DO(cuGraphExecDestroy(second));
}

static void outlives(void) {
    start();
    handle stream;
    dptr at;
    size_t before;
    unsigned char *out, byte = 0;
    DO(cuStreamCreate(&stream, 1));
    DO(cuMemHostAlloc((void **)&out, MIB, 0));
    handle exec = graph(stream, MIB, &at, out, 0);
    before = settled();
    DO(cuGraphLaunch(exec, stream));
    DO(cuStreamSynchronize(stream));
    TRUE(of(USED) == STEP);
    IS(INVALID_VALUE, cuGraphLaunch(exec, stream)); /* still allocated */
    DO(cuMemcpyDtoH_v2(&byte, at + 5, 1));
    TRUE(byte == 0x3c);
    DO(cuMemFreeAsync(at, stream));
    DO(cuStreamSynchronize(stream));
    TRUE(of(USED) == STEP); /* the executable graph keeps it for its next launch */
    DO(cuGraphLaunch(exec, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuMemFree_v2(at));
    TRUE(of(USED) == STEP);
    DO(cuGraphLaunch(exec, stream));
    DO(cuGraphExecDestroy(exec));
    TRUE(of(USED) == STEP);
    DO(cuMemFreeAsync(at, stream));
    DO(cuStreamSynchronize(stream));
    TRUE(of(USED) == 0 && of(RESERVED) == STEP);
    DO(cuDeviceGraphMemTrim(0));
    TRUE(settled() == before);
}

static void runs_out(void) {
    start();
    handle stream, exec;
    dptr at, plain;
    unsigned char *out;
    size_t before;
    DO(cuStreamCreate(&stream, 1));
    DO(cuMemHostAlloc((void **)&out, 64 * MIB, 0));
    exec = graph(stream, 64 * MIB, &at, out, 1);
    before = settled();
    DO(cuMemAlloc_v2(&plain, before - 32 * MIB));
    IS(OUT_OF_MEMORY, cuGraphLaunch(exec, stream));
    TRUE(of(RESERVED) == 0 && of(USED) == 0);
    DO(cuMemFree_v2(plain));
    DO(cuGraphLaunch(exec, stream));
    DO(cuStreamSynchronize(stream));
    TRUE(out[MIB] == 0x3c);
}

TESTS(T(launches), T(outlives), T(runs_out))

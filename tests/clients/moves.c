/* A CUDA driver program that sets, copies, records events and queries them. It answers one command
 * a line on its standard input and knows nothing of gpushare. I is a stream, 0 (the legacy one) to
 * 7; E an event, 0 to 7.
 *
 *   init                 -> init RESULT             cuInit, device 0, its primary context, 64 MiB twice, pinned memory as much
 *   make I FLAGS         -> make RESULT             stream I
 *   launch I NS          -> launch RESULT           a kernel of NS nanoseconds
 *   hold I NS            -> hold RESULT             the same, which needs the first 64 MiB for all of its time
 *   first I NS           -> first RESULT            the same of a module loaded for it
 *   legacyown NS NS      -> legacyown RESULT        one in the legacy stream, by its handle, and one in the thread's own stream, by
 *                                                   cuLaunchKernel_ptsz
 *   ownlegacy NS NS      -> ownlegacy RESULT        the same in the other order
 *   owned NS             -> owned RESULT            one in the thread's own stream, whose destruction is refused; that is waited for, and waits for
 *                                                   a value then
 *   waitown, askown      -> waitown RESULT          cuStreamSynchronize and cuStreamQuery of that by its handle
 *   wait I               -> wait RESULT             cuStreamSynchronize
 *   record E I           -> record RESULT           event E behind what stream I holds
 *   ends E I             -> ends RESULT             a kernel in stream I by cuLaunchKernelEx, with event E for its end
 *   means E I            -> means RESULT            the same, with event E for what it says itself
 *   sync E               -> sync RESULT             cuEventSynchronize
 *   query E              -> query RESULT            cuEventQuery; 600 while there is work
 *   ask I                -> ask RESULT              cuStreamQuery; the same
 *   await I, write I     -> await RESULT            stream I waits for a value in memory, or writes it; it is 0 again behind `reset`
 *   reset                -> reset RESULT
 *   begin I, end I       -> begin RESULT            a capture
 *   set I BYTES          -> set RESULT              cuMemsetD32Async
 *   setnow BYTES         -> setnow RESULT           cuMemsetD8, on the legacy stream
 *   setrect I BYTES      -> setrect RESULT          cuMemsetD2D8Async, rows of 1 KiB
 *   within I BYTES       -> within RESULT           cuMemcpyDtoDAsync
 *   withinnow BYTES      -> withinnow RESULT        cuMemcpyDtoD
 *   any I BYTES          -> any RESULT              cuMemcpyAsync between addresses of the device
 *   told I BYTES         -> told RESULT             cuMemcpyWithAttributesAsync between the same
 *   rect I BYTES         -> rect RESULT             cuMemcpy2DAsync within the device, rows of 1 KiB
 *   peer I BYTES         -> peer RESULT             cuMemcpyPeerAsync from the context to itself
 *   cuMem... I BYTES     -> cuMem... RESULT         the function of that name sets or copies within the device
 *   united I BYTES       -> united RESULT           the same between unified addresses
 *   pool, mapping, managed, far -> RESULT          what is copied and set from now on is memory of a pool, mapped by cuMemMap,
 *                                                   managed, or linear memory of device 1
 *   down I BYTES         -> down RESULT             cuMemcpyDtoHAsync to pinned memory
 *   downnow BYTES        -> downnow RESULT          cuMemcpyDtoH to pageable memory
 *   upnow BYTES          -> upnow RESULT            cuMemcpyHtoD from pageable memory
 *   up I BYTES           -> up RESULT               cuMemcpyHtoDAsync from pinned memory
 *   anyup I BYTES        -> anyup RESULT            cuMemcpyAsync from pinned memory
 *   anypage I BYTES      -> anypage RESULT          cuMemcpyAsync from pageable memory
 *   batchdown I BYTES    -> batchdown RESULT        cuMemcpyBatchAsync of two halves to pinned memory
 *   batchup I BYTES      -> batchup RESULT          the same from pinned memory
 *   noded E, noded2 E    -> noded RESULT            a graph that records event E, by cuGraphAddEventRecordNode or cuGraphAddNode
 *   external E I         -> external RESULT         the same, by a capture of stream I
 *   graph I              -> graph RESULT            launches it
 *   export               -> export HANDLE           an event for other processes, as hexadecimal digits
 *   import HANDLE        -> import RESULT           the event of another process
 *   lead I               -> lead RESULT             cuEventRecord of that event behind what stream I holds
 *   follow I             -> follow RESULT           cuStreamWaitEvent of that event
 *   post COMMAND         -> post 0                  another thread executes it
 *   posted               -> posted DONE             -1 while it does, then its result
 *
 * RESULT is the CUresult as a number. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/driver.h"

typedef unsigned long long dptr;
/* CUDA_MEMCPY2D_v2. */
struct rectangle {
    size_t src_x, src_y;
    unsigned src_type;
    const void *src_host;
    dptr src_device;
    void *src_array;
    size_t src_pitch, dst_x, dst_y;
    unsigned dst_type;
    void *dst_host;
    dptr dst_device;
    void *dst_array;
    size_t dst_pitch, width, height;
};

/* CU_STREAM_LEGACY and CU_STREAM_PER_THREAD. */
#define LEGACY ((void *)1)
#define PER_THREAD ((void *)2)

enum { ROOM = 64 << 20, ROW = 1024, DEVICE = 2, UNIFIED = 4 };
static void *context, *owner, *function, *holding, *streams[8], *events[8], *pinned, *pageable;
static dptr one, two, value;
static atomic_int posted;

#define LAUNCH (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **)

static int load(void) {
    void *module;
    TRY(CALL("cuModuleLoadData", (void **, const void *))(&module, "any image"));
    TRY(CALL("cuModuleGetFunction", (void **, void *, const char *))(&holding, module, "hold"));
    return CALL("cuModuleGetFunction", (void **, void *, const char *))(&function, module, "spin");
}

static int begin(void) {
    TRY(CALL("cuInit", (unsigned))(0));
    TRY(CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, 0));
    TRY(CALL("cuCtxSetCurrent", (void *))(context));
    owner = context;
    TRY(CALL("cuMemAlloc_v2", (dptr *, size_t))(&one, ROOM));
    TRY(CALL("cuMemAlloc_v2", (dptr *, size_t))(&two, ROOM));
    TRY(CALL("cuMemAlloc_v2", (dptr *, size_t))(&value, 4096));
    TRY(CALL("cuMemsetD8_v2", (dptr, unsigned char, size_t))(value, 0, 4096));
    TRY(CALL("cuMemAllocHost_v2", (void **, size_t))(&pinned, ROOM));
    pageable = malloc(ROOM);
    for (int i = 0; i < 8; i++) TRY(CALL("cuEventCreate", (void **, unsigned))(&events[i], 2));
    return load();
}

static int spin_by(const char *name, uint64_t ns, void *stream) {
    void *parameters[] = {&ns};
    return CALL(name, LAUNCH)(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}
static int spin(uint64_t ns, void *stream) { return spin_by("cuLaunchKernel", ns, stream); }
static int hold(uint64_t ns, void *stream) {
    uint64_t bytes = ROOM;
    void *parameters[] = {&ns, &one, &bytes};
    return CALL("cuLaunchKernel", LAUNCH)(holding, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}
static int own(uint64_t ns) { return spin_by("cuLaunchKernel_ptsz", ns, NULL); }

static int owned(uint64_t ns) {
    TRY(own(ns));
    if (CALL("cuStreamDestroy_v2", (void *))(PER_THREAD) != 400) return 997;
    TRY(CALL("cuStreamSynchronize", (void *))(PER_THREAD));
    return CALL("cuStreamWaitValue32_v2", (void *, dptr, unsigned, unsigned))(PER_THREAD, value, 1, 0);
}

/* CUlaunchConfig and CUlaunchAttribute. */
struct attribute { unsigned id, pad; void *event; int flags[14]; };
struct config { unsigned shape[7]; void *stream; struct attribute *attributes; unsigned count; };

static int launch_with(unsigned id, void *event, void *stream) {
    uint64_t ns = 1000;
    void *parameters[] = {&ns};
    struct attribute attribute = {.id = id, .event = event};
    struct config config = {.shape = {1, 1, 1, 1, 1, 1, 0}, .stream = stream, .attributes = &attribute, .count = 1};
    return CALL("cuLaunchKernelEx", (const struct config *, void *, void **, void **))(&config, function, parameters, NULL);
}

/* CUmemAllocationProp and CUmemAccessDesc. */
struct physical { int type, handles, place, id; void *security; unsigned char flags[8]; };
struct access { int place, id, rights; };

static int map(dptr *at) {
    struct physical of = {.type = 1, .place = 1};
    struct access access = {1, 0, 3};
    unsigned long long memory;
    TRY(CALL("cuMemCreate", (void *, size_t, const struct physical *, unsigned long long))(&memory, ROOM, &of, 0));
    TRY(CALL("cuMemAddressReserve", (dptr *, size_t, size_t, dptr, unsigned long long))(at, ROOM, 0, 0, 0));
    TRY(CALL("cuMemMap", (dptr, size_t, size_t, unsigned long long, unsigned long long))(*at, ROOM, 0, memory, 0));
    return CALL("cuMemSetAccess", (dptr, size_t, const struct access *, size_t))(*at, ROOM, &access, 1);
}

/* Memory of another kind. */
static int take(char kind, dptr *at) {
    if (kind == 'p') return CALL("cuMemAllocAsync", (dptr *, size_t, void *))(at, ROOM, NULL);
    if (kind == 'm') return map(at);
    if (kind == 'f') return CALL("cuMemAlloc_v2", (dptr *, size_t))(at, ROOM);
    return CALL("cuMemAllocManaged", (dptr *, size_t, unsigned))(at, ROOM, 1);
}

static int other(char kind) {
    if (kind == 'f') TRY(CALL("cuDevicePrimaryCtxRetain", (void **, int))(&owner, 1));
    TRY(CALL("cuCtxSetCurrent", (void *))(owner));
    TRY(take(kind, &one));
    TRY(take(kind, &two));
    TRY(CALL("cuCtxSynchronize", (void))());
    return CALL("cuCtxSetCurrent", (void *))(context);
}

static int rectangle(void *stream, size_t bytes, unsigned type) {
    struct rectangle copy = {.src_type = type, .src_device = one, .src_pitch = ROW, .dst_type = type, .dst_device = two,
                             .dst_pitch = ROW, .width = ROW, .height = bytes / ROW};
    return CALL("cuMemcpy2DAsync_v2", (const struct rectangle *, void *))(&copy, stream);
}

/* CUmemcpyAttributes: in the order of the stream. */
struct copying { int order, from[2], to[2]; unsigned flags; };

static int batch(void *stream, dptr to, dptr from, size_t bytes) {
    dptr tos[] = {to, to + bytes / 2}, froms[] = {from, from + bytes / 2};
    size_t sizes[] = {bytes / 2, bytes / 2}, start = 0, failed;
    struct copying how = {.order = 1};
    return CALL("cuMemcpyBatchAsync", (dptr *, dptr *, size_t *, size_t, struct copying *, size_t *, size_t, size_t *, void *))(
        tos, froms, sizes, 2, &how, &start, 1, &failed, stream);
}

static void *exec;

/* cuGraphAddNode's parameters: a type, 7 for a recording, and at byte 16 its event. */
static int noded(void *event, int generic) {
    void *graph, *node;
    struct { int type, reserved[3]; void *event; char rest[232]; } params = {.type = 7, .event = event};
    TRY(CALL("cuGraphCreate", (void **, unsigned))(&graph, 0));
    if (generic) TRY(CALL("cuGraphAddNode", (void **, void *, void *, size_t, void *))(&node, graph, NULL, 0, &params));
    else TRY(CALL("cuGraphAddEventRecordNode", (void **, void *, void *, size_t, void *))(&node, graph, NULL, 0, event));
    return CALL("cuGraphInstantiateWithFlags", (void **, void *, unsigned long long))(&exec, graph, 0);
}

static int external(void *event, void *stream) {
    void *graph;
    TRY(CALL("cuStreamBeginCapture_v2", (void *, int))(stream, 2));
    TRY(CALL("cuEventRecordWithFlags", (void *, void *, unsigned))(event, stream, 1));
    TRY(CALL("cuStreamEndCapture", (void *, void **))(stream, &graph));
    return CALL("cuGraphInstantiateWithFlags", (void **, void *, unsigned long long))(&exec, graph, 0);
}

static int write_value(void *stream, unsigned to) {
    return CALL("cuStreamWriteValue32_v2", (void *, dptr, unsigned, unsigned))(stream, value, to, 0);
}

/* An event that several processes have, and CUipcEventHandle. */
static void *common;
struct handle { unsigned char bytes[64]; };

static int export_event(void) {
    struct handle handle;
    TRY(CALL("cuEventCreate", (void **, unsigned))(&common, 6));
    TRY(CALL("cuIpcGetEventHandle", (struct handle *, void *))(&handle, common));
    printf("export ");
    for (size_t i = 0; i < sizeof handle; i++) printf("%02x", handle.bytes[i]);
    puts("");
    return 0;
}

static int import_event(const char *digits) {
    struct handle handle;
    for (size_t i = 0; i < sizeof handle; i++)
        if (sscanf(digits + 2 * i, "%2hhx", &handle.bytes[i]) != 1) return 996;
    return CALL("cuIpcOpenEventHandle", (void **, struct handle))(&common, handle);
}

#include "moves/named.h"

static int obey(const char *word, unsigned long long a, unsigned long long b) {
    void **stream = &streams[a % 8], *event = events[a % 8];
#define IS(name) (!strcmp(word, name))
    if (IS("init")) return begin();
    if (IS("make")) return CALL("cuStreamCreate", (void **, unsigned))(stream, (unsigned)b);
    if (IS("launch")) return spin(b, *stream);
    if (IS("hold")) return hold(b, *stream);
    if (IS("first")) { TRY(load()); return spin(b, *stream); }
    if (IS("legacyown")) { TRY(spin(a, LEGACY)); return own(b); }
    if (IS("ownlegacy")) { TRY(own(a)); return spin(b, LEGACY); }
    if (IS("owned")) return owned(a);
    if (IS("waitown")) return CALL("cuStreamSynchronize", (void *))(PER_THREAD);
    if (IS("askown")) return CALL("cuStreamQuery", (void *))(PER_THREAD);
    if (IS("wait")) return CALL("cuStreamSynchronize", (void *))(*stream);
    if (IS("record")) return CALL("cuEventRecord", (void *, void *))(event, streams[b % 8]);
    if (IS("ends")) return launch_with(12, event, streams[b % 8]);
    if (IS("means")) return launch_with(7, event, streams[b % 8]);
    if (IS("sync")) return CALL("cuEventSynchronize", (void *))(event);
    if (IS("query")) return CALL("cuEventQuery", (void *))(event);
    if (IS("ask")) return CALL("cuStreamQuery", (void *))(*stream);
    if (IS("lead")) return CALL("cuEventRecord", (void *, void *))(common, *stream);
    if (IS("follow")) return CALL("cuStreamWaitEvent", (void *, void *, unsigned))(*stream, common, 0);
    if (IS("await")) return CALL("cuStreamWaitValue32_v2", (void *, dptr, unsigned, unsigned))(*stream, value, 1, 0);
    if (IS("write")) return write_value(*stream, 1);
    if (IS("reset")) return CALL("cuMemsetD8_v2", (dptr, unsigned char, size_t))(value, 0, 4096);
    if (IS("begin")) return CALL("cuStreamBeginCapture_v2", (void *, int))(*stream, 2);
    if (IS("end")) { void *graph; return CALL("cuStreamEndCapture", (void *, void **))(*stream, &graph); }
    if (IS("batchdown")) return batch(*stream, (dptr)(uintptr_t)pinned, one, b);
    if (IS("batchup")) return batch(*stream, one, (dptr)(uintptr_t)pinned, b);
    if (IS("noded")) return noded(event, 0);
    if (IS("noded2")) return noded(event, 1);
    if (IS("external")) return external(event, streams[b % 8]);
    if (IS("graph")) return CALL("cuGraphLaunch", (void *, void *))(exec, *stream);
    if (IS("set")) return CALL("cuMemsetD32Async", (dptr, unsigned, size_t, void *))(one, 7, b / 4, *stream);
    if (IS("setnow")) return CALL("cuMemsetD8_v2", (dptr, unsigned char, size_t))(one, 7, a);
    if (IS("setrect"))
        return CALL("cuMemsetD2D8Async", (dptr, size_t, unsigned char, size_t, size_t, void *))(one, ROW, 7, ROW, b / ROW, *stream);
    if (IS("within")) return CALL("cuMemcpyDtoDAsync_v2", (dptr, dptr, size_t, void *))(two, one, b, *stream);
    if (IS("withinnow")) return CALL("cuMemcpyDtoD_v2", (dptr, dptr, size_t))(two, one, a);
    if (IS("any")) return CALL("cuMemcpyAsync", (dptr, dptr, size_t, void *))(two, one, b, *stream);
    if (IS("told")) {
        unsigned attributes[6] = {1}; /* CUmemcpyAttributes: the source is read in the stream's order. */
        return CALL("cuMemcpyWithAttributesAsync", (dptr, dptr, size_t, void *, void *))(two, one, b, attributes, *stream);
    }
    if (IS("rect")) return rectangle(*stream, b, DEVICE);
    if (IS("united")) return rectangle(*stream, b, UNIFIED);
    if (IS("pool")) return other('p');
    if (IS("mapping")) return other('m');
    if (IS("managed")) return other('a');
    if (IS("far")) return other('f');
    if (IS("peer")) return CALL("cuMemcpyPeerAsync", (dptr, void *, dptr, void *, size_t, void *))(two, owner, one, owner, b, *stream);
    if (IS("down")) return CALL("cuMemcpyDtoHAsync_v2", (void *, dptr, size_t, void *))(pinned, one, b, *stream);
    if (IS("downnow")) return CALL("cuMemcpyDtoH_v2", (void *, dptr, size_t))(pageable, one, a);
    if (IS("upnow")) return CALL("cuMemcpyHtoD_v2", (dptr, const void *, size_t))(one, pageable, a);
    if (IS("up")) return CALL("cuMemcpyHtoDAsync_v2", (dptr, const void *, size_t, void *))(one, pinned, b, *stream);
    if (IS("anyup")) return CALL("cuMemcpyAsync", (dptr, dptr, size_t, void *))(one, (dptr)(uintptr_t)pinned, b, *stream);
    if (IS("anypage")) return CALL("cuMemcpyAsync", (dptr, dptr, size_t, void *))(one, (dptr)(uintptr_t)pageable, b, *stream);
    return !strncmp(word, "cuMem", 5) ? named(word, *stream, b) : 998;
}

struct order { char word[48]; unsigned long long a, b; };

static void *post(void *given) {
    struct order *order = given;
    int result = CALL("cuCtxSetCurrent", (void *))(context);
    posted = result ? result : obey(order->word, order->a, order->b);
    free(order);
    return NULL;
}

int main(void) {
    char line[256], word[48];
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long a = 0, b = 0;
        int result = 0;
        if (sscanf(line, "%47s %llu %llu", word, &a, &b) < 1) continue;
        if (!strcmp(word, "post")) {
            pthread_t thread;
            struct order *order = calloc(1, sizeof *order);
            if (!order || sscanf(line, "post %47s %llu %llu", order->word, &order->a, &order->b) < 1) return 3;
            posted = -1;
            pthread_create(&thread, NULL, post, order);
            pthread_detach(thread);
        } else if (!strcmp(word, "export")) {
            result = export_event();
            if (!result) continue;
        } else if (!strcmp(word, "import")) result = import_event(line + strlen("import "));
        else if (!strcmp(word, "posted")) result = posted;
        else result = obey(word, a, b);
        printf("%s %d\n", word, result);
    }
    return 0;
}

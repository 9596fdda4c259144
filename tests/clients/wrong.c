/* Calls of every family that allocates: each is wrong in one way besides its size, and a right one
 * stands beside it. It knows nothing of gpushare.
 *
 *   usage: wrong SECTION [held]
 *   SECTION: linear, pitch, managed, vmm, async, array, graph, capture, bare, lost, beside, or waits, in which
 *            nothing is right
 *
 * With "held" it prints "ready 0" when its context is made, and goes on after one line of input.
 * Prints "SECTION.NAME RESULT" a call, the CUresult as a number. A call whose name begins with
 * "right" succeeds where there is room. All of them ask for ROOM or more, which must be above the
 * quota that is tried. What succeeds is freed again. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/driver.h"

enum { ROOM = 128 << 20 };

typedef unsigned long long dptr;
struct location { int type, id; };
struct prop { int type, handle_types; struct location location; void *win32; unsigned char flags[8]; };
struct pool_props { int type, handle_types; struct location location; void *win32; size_t max; unsigned char rest[56]; };
struct node_params { struct pool_props pool; const void *access; size_t accesses, bytes; dptr at; };
struct array2d { size_t width, height; int format; unsigned channels; };
struct array3d { size_t width, height, depth; int format; unsigned channels, flags; };

static void *context;
static const char *section;

static int say(const char *name, int result) {
    printf("%s.%s %d\n", section, name, result);
    return result;
}

static void must(int result, const char *what) {
    if (!result) return;
    fprintf(stderr, "%s: %s %d\n", section, what, result);
    exit(2);
}

/* Frees what a call left at `at`, if it did. */
static int freed(int result, dptr at) {
    if (!result) must(CALL("cuMemFree_v2", (dptr))(at), "cuMemFree");
    return result;
}

static void linear(void) {
    dptr at = 0;
    say("right", freed(CALL("cuMemAlloc_v2", (dptr *, size_t))(&at, ROOM), at));
    say("nowhere", CALL("cuMemAlloc_v2", (dptr *, size_t))(NULL, ROOM));
    say("larger_than_all", CALL("cuMemAlloc_v2", (dptr *, size_t))(&at, (size_t)1 << 62));
    say("largest", CALL("cuMemAlloc_v2", (dptr *, size_t))(&at, SIZE_MAX));
}

static int pitched(dptr *at, size_t *pitch, size_t width, size_t height, unsigned element) {
    return freed(CALL("cuMemAllocPitch_v2", (dptr *, size_t *, size_t, size_t, unsigned))(at, pitch, width, height, element), at ? *at : 0);
}

static void pitch(void) {
    dptr at = 0;
    size_t pitch;
    say("right", pitched(&at, &pitch, 4096, ROOM / 4096, 4));
    say("right_element_16", pitched(&at, &pitch, 4096, ROOM / 4096, 16));
    say("element", pitched(&at, &pitch, 4096, ROOM / 4096, 3));
    say("no_element", pitched(&at, &pitch, 4096, ROOM / 4096, 0));
    say("width", pitched(&at, &pitch, (size_t)1 << 40, 1, 4));
    say("nowhere", pitched(NULL, &pitch, 4096, ROOM / 4096, 4));
    say("no_pitch", pitched(&at, NULL, 4096, ROOM / 4096, 4));
}

static void managed(void) {
    dptr at = 0;
    say("right", freed(CALL("cuMemAllocManaged", (dptr *, size_t, unsigned))(&at, ROOM, 1), at));
    say("right_host", freed(CALL("cuMemAllocManaged", (dptr *, size_t, unsigned))(&at, ROOM, 2), at));
    say("flags", CALL("cuMemAllocManaged", (dptr *, size_t, unsigned))(&at, ROOM, 77));
    say("no_flags", CALL("cuMemAllocManaged", (dptr *, size_t, unsigned))(&at, ROOM, 0));
    say("nowhere", CALL("cuMemAllocManaged", (dptr *, size_t, unsigned))(NULL, ROOM, 1));
}

static int create(unsigned long long *handle, size_t size, const struct prop *prop, uint64_t flags) {
    int result = CALL("cuMemCreate", (unsigned long long *, size_t, const struct prop *, uint64_t))(handle, size, prop, flags);
    if (!result) must(CALL("cuMemRelease", (unsigned long long))(*handle), "cuMemRelease");
    return result;
}

static void vmm(void) {
    unsigned long long handle;
    struct prop prop = {1, 0, {1, 0}, NULL, {0}}, wrong;
    say("right", create(&handle, ROOM, &prop, 0));
    say("odd_size", create(&handle, ROOM + 512, &prop, 0));
    say("flags", create(&handle, ROOM, &prop, 1));
    say("nowhere", create(NULL, ROOM, &prop, 0));
    say("no_properties", create(&handle, ROOM, NULL, 0));
    wrong = prop, wrong.type = 9;
    say("type", create(&handle, ROOM, &wrong, 0));
    wrong = prop, wrong.location.type = 77;
    say("location", create(&handle, ROOM, &wrong, 0));
    wrong = prop, wrong.location.id = 99;
    say("device", create(&handle, ROOM, &wrong, 0));
    wrong = prop, wrong.handle_types = 0x40;
    say("handle_types", create(&handle, ROOM, &wrong, 0));
}

static int ordered(dptr *at, size_t size, void *stream) {
    int result = CALL("cuMemAllocAsync", (dptr *, size_t, void *))(at, size, stream);
    if (!result) must(CALL("cuMemFreeAsync", (dptr, void *))(*at, stream) || CALL("cuStreamSynchronize", (void *))(stream), "cuMemFreeAsync");
    return result;
}

static int ordered_from(dptr *at, size_t size, void *pool, void *stream) {
    int result = CALL("cuMemAllocFromPoolAsync", (dptr *, size_t, void *, void *))(at, size, pool, stream);
    if (!result) must(CALL("cuMemFreeAsync", (dptr, void *))(*at, stream) || CALL("cuStreamSynchronize", (void *))(stream), "cuMemFreeAsync");
    return result;
}

static void async(void) {
    dptr at;
    void *stream, *dead, *pool, *gone;
    struct pool_props props = {1, 0, {1, 0}, NULL, 0, {0}};
    must(CALL("cuStreamCreate", (void **, unsigned))(&stream, 1), "cuStreamCreate");
    must(CALL("cuStreamCreate", (void **, unsigned))(&dead, 1), "cuStreamCreate");
    must(CALL("cuStreamDestroy_v2", (void *))(dead), "cuStreamDestroy");
    must(CALL("cuMemPoolCreate", (void **, const struct pool_props *))(&pool, &props), "cuMemPoolCreate");
    must(CALL("cuMemPoolCreate", (void **, const struct pool_props *))(&gone, &props), "cuMemPoolCreate");
    must(CALL("cuMemPoolDestroy", (void *))(gone), "cuMemPoolDestroy");
    say("right", ordered(&at, ROOM, stream));
    say("right_in_stream_0", ordered(&at, ROOM, NULL));
    say("right_from_pool", ordered_from(&at, ROOM, pool, stream));
    say("stream", ordered(&at, ROOM, (void *)0x1234560));
    say("dead_stream", ordered(&at, ROOM, dead));
    say("nowhere", ordered(NULL, ROOM, stream));
    say("pool", ordered_from(&at, ROOM, (void *)0x7654320, stream));
    say("dead_pool", ordered_from(&at, ROOM, gone, stream));
    say("no_pool", ordered_from(&at, ROOM, NULL, stream));
    say("pool_and_stream", ordered_from(&at, ROOM, pool, (void *)0x1234560));
    must(CALL("cuMemPoolDestroy", (void *))(pool), "cuMemPoolDestroy");
}

static int array2d(void **array, size_t width, size_t height, int format, unsigned channels) {
    struct array2d descriptor = {width, height, format, channels};
    int result = CALL("cuArrayCreate_v2", (void **, const struct array2d *))(array, &descriptor);
    if (!result) must(CALL("cuArrayDestroy", (void *))(*array), "cuArrayDestroy");
    return result;
}

static int array3d(void **array, size_t width, size_t height, size_t depth, int format, unsigned channels, unsigned flags) {
    struct array3d descriptor = {width, height, depth, format, channels, flags};
    int result = CALL("cuArray3DCreate_v2", (void **, const struct array3d *))(array, &descriptor);
    if (!result) must(CALL("cuArrayDestroy", (void *))(*array), "cuArrayDestroy");
    return result;
}

static int mipmap(void **array, size_t side, int format, unsigned channels, unsigned flags, unsigned levels) {
    struct array3d descriptor = {side, side, 0, format, channels, flags};
    int result = CALL("cuMipmappedArrayCreate", (void **, const struct array3d *, unsigned))(array, &descriptor, levels);
    if (!result) must(CALL("cuMipmappedArrayDestroy", (void *))(*array), "cuMipmappedArrayDestroy");
    return result;
}

static void array(void) {
    void *array;
    say("right", array2d(&array, 8192, 4096, 32, 1));
    say("right_4_channels", array2d(&array, 8192, 4096, 1, 4));
    say("right_planar", array2d(&array, 16384, 8192, 176, 3));
    say("right_compressed", array2d(&array, 32768, 16384, 145, 4));
    say("format", array2d(&array, 8192, 8192, 77, 1));
    say("no_format", array2d(&array, 8192, 8192, 0, 1));
    say("channels", array2d(&array, 8192, 8192, 32, 3));
    say("no_channels", array2d(&array, 8192, 8192, 32, 0));
    say("width", array2d(&array, (size_t)1 << 40, 1, 32, 1));
    say("height", array2d(&array, 8192, (size_t)1 << 40, 32, 1));
    say("nowhere", array2d(NULL, 8192, 8192, 32, 1));
    say("no_descriptor", CALL("cuArrayCreate_v2", (void **, void *))(&array, NULL));
    say("right_3d", array3d(&array, 512, 512, 128, 32, 1, 0));
    say("right_layered", array3d(&array, 2048, 2048, 8, 32, 1, 1));
    say("right_cubemap", array3d(&array, 4096, 4096, 6, 32, 1, 4));
    say("3d_format", array3d(&array, 512, 512, 512, 33, 1, 0));
    say("3d_flags", array3d(&array, 512, 512, 512, 32, 1, 0x40000000));
    say("3d_depth", array3d(&array, 512, 512, (size_t)1 << 30, 32, 1, 0));
    say("3d_without_height", array3d(&array, 1 << 14, 0, 1 << 14, 32, 1, 0));
    say("3d_layers", array3d(&array, 512, 512, 4096, 32, 1, 1));
    say("3d_no_layers", array3d(&array, 32768, 32768, 0, 32, 1, 1));
    say("3d_cubemap_not_square", array3d(&array, 4096, 2048, 6, 32, 1, 4));
    say("3d_cubemap_of_5", array3d(&array, 4096, 4096, 5, 32, 1, 4));
    say("right_mipmap", mipmap(&array, 8192, 32, 1, 0, 3));
    say("mipmap_format", mipmap(&array, 8192, 33, 1, 0, 3));
    say("mipmap_channels", mipmap(&array, 8192, 32, 7, 0, 3));
    say("mipmap_flags", mipmap(&array, 8192, 32, 1, 0x40000000, 3));
    /* It has one level. */
    say("right_mipmap_of_0_levels", mipmap(&array, 8192, 32, 1, 0, 0));
}

/* A graph of one allocation and its free. */
static void *allocating(void) {
    void *graph, *node, *last;
    struct node_params params = {{1, 0, {1, 0}, NULL, 0, {0}}, NULL, 0, ROOM, 0};
    must(CALL("cuGraphCreate", (void **, unsigned))(&graph, 0), "cuGraphCreate");
    must(CALL("cuGraphAddMemAllocNode", (void **, void *, void **, size_t, struct node_params *))(&node, graph, NULL, 0, &params), "alloc node");
    must(CALL("cuGraphAddMemFreeNode", (void **, void *, void **, size_t, dptr))(&last, graph, &node, 1, params.at), "free node");
    return graph;
}

static void graph(void) {
    struct { uint64_t flags; void *stream, *node; int result, pad; } params = {2, NULL, NULL, 0, 0};
    void *exec = NULL, *stream, *graph = allocating(), *gone = allocating();
    must(CALL("cuStreamCreate", (void **, unsigned))(&stream, 1), "cuStreamCreate");
    must(CALL("cuGraphDestroy", (void *))(gone), "cuGraphDestroy");
    say("of_garbage", CALL("cuGraphInstantiateWithFlags", (void **, void *, uint64_t))(&exec, (void *)0x1357900, 0));
    say("of_nothing", CALL("cuGraphInstantiateWithFlags", (void **, void *, uint64_t))(&exec, NULL, 0));
    say("of_the_gone", CALL("cuGraphInstantiateWithFlags", (void **, void *, uint64_t))(&exec, gone, 0));
    say("of_garbage_by_params", CALL("cuGraphInstantiateWithParams", (void **, void *, void *))(&exec, (void *)0x1357900, &params));
    say("nowhere", CALL("cuGraphInstantiateWithFlags", (void **, void *, uint64_t))(NULL, graph, 0));
    say("nowhere_uploading", CALL("cuGraphInstantiateWithFlags", (void **, void *, uint64_t))(NULL, graph, 2));
    say("flags_uploading", CALL("cuGraphInstantiateWithFlags", (void **, void *, uint64_t))(&exec, graph, 2 | 1u << 20));
    say("nowhere_by_params", CALL("cuGraphInstantiateWithParams", (void **, void *, void *))(NULL, graph, &params));
    say("right_uploading", CALL("cuGraphInstantiateWithFlags", (void **, void *, uint64_t))(&exec, graph, 2));
    CALL("cuGraphExecDestroy", (void *))(exec);
    must(CALL("cuGraphInstantiateWithFlags", (void **, void *, uint64_t))(&exec, graph, 0), "cuGraphInstantiate");
    say("right_launch", CALL("cuGraphLaunch", (void *, void *))(exec, stream));
    say("right_upload", CALL("cuGraphUpload", (void *, void *))(exec, stream));
    say("launch_stream", CALL("cuGraphLaunch", (void *, void *))(exec, (void *)0x1234560));
    say("upload_stream", CALL("cuGraphUpload", (void *, void *))(exec, (void *)0x1234560));
    say("launch_garbage", CALL("cuGraphLaunch", (void *, void *))((void *)0x1357900, stream));
    must(CALL("cuStreamSynchronize", (void *))(stream), "cuStreamSynchronize");
}

/* The results of an allocation during a capture of this mode, which was begun in a stream that
 * does not block. */
static void captured(const char *name, int mode) {
    char line[64];
    dptr at = 0;
    int status = -1, result;
    void *stream, *graph = NULL;
    must(CALL("cuStreamCreate", (void **, unsigned))(&stream, 1), "cuStreamCreate");
    must(CALL("cuStreamBeginCapture_v2", (void *, int))(stream, mode), "cuStreamBeginCapture");
    result = CALL("cuMemAlloc_v2", (dptr *, size_t))(&at, ROOM);
    snprintf(line, sizeof line, "%s_alloc", name), say(line, result);
    must(CALL("cuStreamIsCapturing", (void *, int *))(stream, &status), "cuStreamIsCapturing");
    snprintf(line, sizeof line, "%s_is_then", name), say(line, status);
    result = CALL("cuStreamEndCapture", (void *, void **))(stream, &graph);
    snprintf(line, sizeof line, "%s_end", name), say(line, result);
    if (at) must(CALL("cuMemFree_v2", (dptr))(at), "cuMemFree");
}

static void capture(void) {
    captured("global", 0);
    captured("local", 1);
    captured("right_relaxed", 2);
}

/* Work of the current context fails. */
static void fail(void) {
    void *module, *fill;
    dptr nowhere = 4096;
    uint64_t count = 1;
    uint32_t value = 1;
    void *parameters[] = {&nowhere, &count, &value};
    must(CALL("cuModuleLoadData", (void **, const void *))(&module, "any image"), "cuModuleLoadData");
    must(CALL("cuModuleGetFunction", (void **, void *, const char *))(&fill, module, "fill"), "cuModuleGetFunction");
    must(CALL("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))(
             fill, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL), "cuLaunchKernel");
    say("fails", CALL("cuCtxSynchronize", (void))());
}

/* A context whose work has failed, and none at all. */
static void lost(void) {
    dptr at;
    void *array;
    fail();
    say("linear", CALL("cuMemAlloc_v2", (dptr *, size_t))(&at, ROOM));
    say("async", CALL("cuMemAllocAsync", (dptr *, size_t, void *))(&at, ROOM, NULL));
    say("managed", CALL("cuMemAllocManaged", (dptr *, size_t, unsigned))(&at, ROOM, 1));
    say("array", array2d(&array, 8192, 8192, 32, 1));
}

/* A context beside one whose work has failed. */
static void beside(void) {
    void *primary, *second;
    dptr held, at;
    must(CALL("cuCtxGetCurrent", (void **))(&primary), "cuCtxGetCurrent");
    must(CALL("cuMemAlloc_v2", (dptr *, size_t))(&held, 1 << 20), "cuMemAlloc");
    must(CALL("cuCtxCreate_v2", (void **, unsigned, int))(&second, 0, 0), "cuCtxCreate");
    fail();
    must(CALL("cuCtxSetCurrent", (void *))(primary), "cuCtxSetCurrent");
    say("synchronize", CALL("cuCtxSynchronize", (void))());
    say("free", CALL("cuMemFree_v2", (dptr))(held));
    say("linear", CALL("cuMemAlloc_v2", (dptr *, size_t))(&at, ROOM));
    say("async", CALL("cuMemAllocAsync", (dptr *, size_t, void *))(&at, ROOM, NULL));
    must(CALL("cuCtxDestroy_v2", (void *))(second), "cuCtxDestroy");
    say("create", CALL("cuCtxCreate_v2", (void **, unsigned, int))(&second, 0, 0));
}

static void bare(void) {
    dptr at;
    size_t pitch;
    void *array;
    must(CALL("cuCtxSetCurrent", (void *))(NULL), "cuCtxSetCurrent");
    say("linear", CALL("cuMemAlloc_v2", (dptr *, size_t))(&at, ROOM));
    say("pitch", pitched(&at, &pitch, 4096, ROOM / 4096, 4));
    say("managed", CALL("cuMemAllocManaged", (dptr *, size_t, unsigned))(&at, ROOM, 1));
    say("async", CALL("cuMemAllocAsync", (dptr *, size_t, void *))(&at, ROOM, NULL));
    say("array", array2d(&array, 8192, 8192, 32, 1));
    must(CALL("cuCtxSetCurrent", (void *))(context), "cuCtxSetCurrent");
}

/* One wrong call of each family. */
static void waits(void) {
    dptr at;
    size_t pitch;
    unsigned long long handle;
    void *array;
    struct prop prop = {1, 0, {1, 0}, NULL, {0}};
    say("pitch", pitched(&at, &pitch, 4096, ROOM / 4096, 3));
    say("managed", CALL("cuMemAllocManaged", (dptr *, size_t, unsigned))(&at, ROOM, 77));
    say("vmm", create(&handle, ROOM + 512, &prop, 0));
    say("async", ordered(&at, ROOM, (void *)0x1234560));
    say("array", array2d(&array, 8192, 8192, 77, 1));
    captured("capture", 0);
}

static const struct { const char *name; void (*of)(void); } sections[] = {
    {"linear", linear}, {"pitch", pitch}, {"managed", managed}, {"vmm", vmm}, {"async", async}, {"array", array}, {"graph", graph},
    {"capture", capture}, {"bare", bare}, {"lost", lost}, {"beside", beside}, {"waits", waits},
};

int main(int argc, char **argv) {
    int device;
    setvbuf(stdout, NULL, _IOLBF, 0);
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 2;
    section = "start";
    must(CALL("cuInit", (unsigned))(0), "cuInit");
    must(CALL("cuDeviceGet", (int *, int))(&device, 0), "cuDeviceGet");
    must(CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, device), "cuDevicePrimaryCtxRetain");
    must(CALL("cuCtxSetCurrent", (void *))(context), "cuCtxSetCurrent");
    if (argc > 2) {
        puts("ready 0");
        if (getchar() == EOF) return 2;
    }
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        if (argc < 2 || strcmp(argv[1], sections[i].name)) continue;
        section = sections[i].name;
        sections[i].of();
    }
    return 0;
}

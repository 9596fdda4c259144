/* One way of finding the driver's functions and one way of allocating, driven line by line. It
 * knows nothing of gpushare.
 *
 *   usage: matrix BINDING PATH [MOST]
 *   BINDING: dlsym, v1 (cuGetProcAddress), v2 (cuGetProcAddress_v2), twins (dlsym of per-thread names), v2-per-thread
 *   PATH:    linear, pitch, managed, async, pool, default-pool, vmm, array, flat-array, mipmap, graph, any-node, uploaded, captured, child
 *
 *   take   -> take COUNT RESULT     allocates 8 MiB at a time until the first refusal, or until it has MOST (4096)
 *   give   -> give RESULT           frees them all, waits, gives back what pools and graphs keep
 *   free   -> free BYTES            cuMemGetInfo
 *
 * RESULT is the CUresult as a number, -1 for a function that is not there. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 8 << 20, MOST = 4096 };

typedef unsigned long long dptr;
struct location { int type, id; };
struct prop { int type, handle_types; struct location location; void *win32; unsigned char flags[8]; };
struct access { struct location location; int flags; };
struct pool_props { int type, handle_types; struct location location; void *win32; size_t max; unsigned char rest[56]; };
struct node_params { struct pool_props pool; const struct access *access; size_t accesses, bytes; dptr at; };
struct array2d { size_t width, height; int format; unsigned channels; };
struct any_params { int type, reserved[3]; union { struct node_params alloc; struct { void *graph; int ownership; } child; long long whole[29]; } as; long long reserved2; };
struct array3d { size_t width, height, depth; int format; unsigned channels, flags; };

static void *driver;
static const char *binding;
static int (*address_v1)(const char *, void **, int, uint64_t);
static int (*address_v2)(const char *, void **, int, uint64_t, int *);

/* A function by its base name: the versioned symbol and its per-thread twin (or NULL) for dlsym,
 * the version it came with for cuGetProcAddress. */
static void *function(const char *base, const char *symbol, const char *twin, int version) {
    void *found = NULL;
    int status;
    if (!strcmp(binding, "dlsym")) found = dlsym(driver, symbol);
    else if (!strcmp(binding, "twins")) found = dlsym(driver, twin ? twin : symbol);
    else if (!strcmp(binding, "v1")) address_v1(base, &found, version, 0);
    else address_v2(base, &found, version, !strcmp(binding, "v2") ? 0 : 2, &status);
    if (!found) {
        fprintf(stderr, "no %s by %s\n", symbol, binding);
        exit(2);
    }
    return found;
}

/* CALL(base, symbol, twin, version, (types), (arguments)): looks up and calls. Looking up each time
 * also exercises the lookup. */
#define CALL(base, symbol, twin, version, types, arguments) \
    ((int(*) types)function(base, symbol, twin, version)) arguments

static struct { dptr at; void *handle, *graph; } live[MOST];
static int count;
static void *pool;
static const struct location device0 = {1, 0};

static int take_linear(int i) {
    return CALL("cuMemAlloc", "cuMemAlloc_v2", NULL, 3020, (dptr *, size_t), (&live[i].at, CHUNK));
}

static int take_pitch(int i) {
    size_t pitch;
    return CALL("cuMemAllocPitch", "cuMemAllocPitch_v2", NULL, 3020, (dptr *, size_t *, size_t, size_t, unsigned),
                (&live[i].at, &pitch, CHUNK / 8 - 100, 8, 4));
}

static int take_managed(int i) {
    return CALL("cuMemAllocManaged", "cuMemAllocManaged", NULL, 6000, (dptr *, size_t, unsigned), (&live[i].at, CHUNK, 1));
}

static int give_linear(int i) { return CALL("cuMemFree", "cuMemFree_v2", NULL, 3020, (dptr), (live[i].at)); }

static int take_async(int i) {
    return CALL("cuMemAllocAsync", "cuMemAllocAsync", "cuMemAllocAsync_ptsz", 11020, (dptr *, size_t, void *),
                (&live[i].at, CHUNK, NULL));
}

static int give_async(int i) {
    return CALL("cuMemFreeAsync", "cuMemFreeAsync", "cuMemFreeAsync_ptsz", 11020, (dptr, void *), (live[i].at, NULL));
}

static int take_pool(int i) {
    if (!pool) {
        struct pool_props props = {.type = 1, .location = device0};
        int made = CALL("cuMemPoolCreate", "cuMemPoolCreate", NULL, 11020, (void **, struct pool_props *), (&pool, &props));
        if (made) return made;
    }
    return CALL("cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz", 11020,
                (dptr *, size_t, void *, void *), (&live[i].at, CHUNK, pool, NULL));
}

static int take_default_pool(int i) {
    void *by_default;
    int result = CALL("cuDeviceGetDefaultMemPool", "cuDeviceGetDefaultMemPool", NULL, 11020, (void **, int), (&by_default, 0));
    return result ? result : CALL("cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz", 11020,
                                  (dptr *, size_t, void *, void *), (&live[i].at, CHUNK, by_default, NULL));
}

static int take_vmm(int i) {
    struct prop prop = {.type = 1, .location = device0};
    uint64_t handle;
    int result = CALL("cuMemCreate", "cuMemCreate", NULL, 10020, (uint64_t *, size_t, struct prop *, unsigned long long),
                      (&handle, CHUNK, &prop, 0));
    if (result) return result;
    result = CALL("cuMemAddressReserve", "cuMemAddressReserve", NULL, 10020,
                  (dptr *, size_t, size_t, dptr, unsigned long long), (&live[i].at, CHUNK, 0, 0, 0));
    if (!result)
        result = CALL("cuMemMap", "cuMemMap", NULL, 10020, (dptr, size_t, size_t, uint64_t, unsigned long long),
                      (live[i].at, CHUNK, 0, handle, 0));
    /* The mapping keeps the memory from here on. */
    int released = CALL("cuMemRelease", "cuMemRelease", NULL, 10020, (uint64_t), (handle));
    return result ? result : released;
}

static int give_vmm(int i) {
    int result = CALL("cuMemUnmap", "cuMemUnmap", NULL, 10020, (dptr, size_t), (live[i].at, CHUNK));
    int freed = CALL("cuMemAddressFree", "cuMemAddressFree", NULL, 10020, (dptr, size_t), (live[i].at, CHUNK));
    return result ? result : freed;
}

static int take_array(int i) {
    struct array3d shape = {1024, 1024, 2, 0x20, 1, 0};
    return CALL("cuArray3DCreate", "cuArray3DCreate_v2", NULL, 3020, (void **, struct array3d *), (&live[i].handle, &shape));
}

static int take_flat_array(int i) {
    struct array2d shape = {1024, 2048, 0x20, 1};
    return CALL("cuArrayCreate", "cuArrayCreate_v2", NULL, 3020, (void **, struct array2d *), (&live[i].handle, &shape));
}

static int give_array(int i) {
    return CALL("cuArrayDestroy", "cuArrayDestroy", NULL, 2000, (void *), (live[i].handle));
}

static int take_mipmap(int i) {
    struct array3d shape = {1024, 1536, 0, 0x20, 1, 0};
    return CALL("cuMipmappedArrayCreate", "cuMipmappedArrayCreate", NULL, 5000, (void **, struct array3d *, unsigned),
                (&live[i].handle, &shape, 4));
}

static int give_mipmap(int i) {
    return CALL("cuMipmappedArrayDestroy", "cuMipmappedArrayDestroy", NULL, 5000, (void *), (live[i].handle));
}

/* Makes live[i]'s graph runnable and runs it; with UPLOAD its memory is taken before it runs. */
static int run_graph(int i, int upload) {
    int result = CALL("cuGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags", NULL, 11040,
                      (void **, void *, unsigned long long), (&live[i].handle, live[i].graph, 0));
    if (!result && upload)
        result = CALL("cuGraphUpload", "cuGraphUpload", "cuGraphUpload_ptsz", 11010, (void *, void *), (live[i].handle, NULL));
    if (!result)
        result = CALL("cuGraphLaunch", "cuGraphLaunch", "cuGraphLaunch_ptsz", 10000, (void *, void *), (live[i].handle, NULL));
    return result;
}

/* Destroys the remains of a graph that could not be made or run. Returns `result`. */
static int undone(int i, int result) {
    if (result && live[i].handle) CALL("cuGraphExecDestroy", "cuGraphExecDestroy", NULL, 10000, (void *), (live[i].handle));
    if (result && live[i].graph) CALL("cuGraphDestroy", "cuGraphDestroy", NULL, 10000, (void *), (live[i].graph));
    if (result) live[i].handle = live[i].graph = NULL;
    return result;
}

static const struct access device0_access = {{1, 0}, 3};

static struct node_params chunk(void) {
    return (struct node_params){.pool = {.type = 1, .location = device0}, .access = &device0_access, .accesses = 1, .bytes = CHUNK};
}

static int new_graph(void **graph) {
    return CALL("cuGraphCreate", "cuGraphCreate", NULL, 10000, (void **, unsigned), (graph, 0));
}

static int add_chunk(void *graph, dptr *at) {
    struct node_params params = chunk();
    void *node;
    int result = CALL("cuGraphAddMemAllocNode", "cuGraphAddMemAllocNode", NULL, 11040,
                      (void **, void *, const void *, size_t, struct node_params *), (&node, graph, NULL, 0, &params));
    *at = params.at;
    return result;
}

static int take_graph(int i) {
    int result = new_graph(&live[i].graph);
    if (!result) result = add_chunk(live[i].graph, &live[i].at);
    return undone(i, result ? result : run_graph(i, 0));
}

static int take_uploaded(int i) {
    int result = new_graph(&live[i].graph);
    if (!result) result = add_chunk(live[i].graph, &live[i].at);
    return undone(i, result ? result : run_graph(i, 1));
}

static int add_any(void *graph, struct any_params *params) {
    void *node;
    return CALL("cuGraphAddNode", "cuGraphAddNode", NULL, 12020, (void **, void *, const void *, size_t, struct any_params *),
                (&node, graph, NULL, 0, params));
}

static int take_any_node(int i) {
    struct any_params params = {.type = 10, .as.alloc = chunk()};
    int result = new_graph(&live[i].graph);
    if (!result) result = add_any(live[i].graph, &params);
    live[i].at = params.as.alloc.at;
    return undone(i, result ? result : run_graph(i, 0));
}

/* The child is the parent's own: one that allocates cannot be copied. */
static int take_child(int i) {
    void *child = NULL;
    int result = new_graph(&live[i].graph);
    if (!result) result = new_graph(&child);
    if (!result) result = add_chunk(child, &live[i].at);
    struct any_params params = {.type = 4, .as.child = {child, 1}};
    if (!result) result = add_any(live[i].graph, &params);
    return undone(i, result ? result : run_graph(i, 0));
}

static int take_captured(int i) {
    static void *recording;
    int result = 0;
    if (!recording) result = CALL("cuStreamCreate", "cuStreamCreate", NULL, 2000, (void **, unsigned), (&recording, 1));
    if (!result)
        result = CALL("cuStreamBeginCapture", "cuStreamBeginCapture_v2", "cuStreamBeginCapture_v2_ptsz", 10010, (void *, int), (recording, 0));
    if (!result)
        result = CALL("cuMemAllocAsync", "cuMemAllocAsync", "cuMemAllocAsync_ptsz", 11020, (dptr *, size_t, void *),
                      (&live[i].at, CHUNK, recording));
    if (!result)
        result = CALL("cuStreamEndCapture", "cuStreamEndCapture", "cuStreamEndCapture_ptsz", 10000, (void *, void **),
                      (recording, &live[i].graph));
    return undone(i, result ? result : run_graph(i, 0));
}

static int give_graph(int i) {
    int result = give_async(i);
    int exec = CALL("cuGraphExecDestroy", "cuGraphExecDestroy", NULL, 10000, (void *), (live[i].handle));
    int graph = CALL("cuGraphDestroy", "cuGraphDestroy", NULL, 10000, (void *), (live[i].graph));
    return result ? result : exec ? exec : graph;
}

static const struct { const char *name; int (*take)(int), (*give)(int); } paths[] = {
    {"linear", take_linear, give_linear}, {"pitch", take_pitch, give_linear}, {"managed", take_managed, give_linear},
    {"async", take_async, give_async},    {"pool", take_pool, give_async},    {"vmm", take_vmm, give_vmm},
    {"array", take_array, give_array},    {"mipmap", take_mipmap, give_mipmap}, {"graph", take_graph, give_graph},
    {"default-pool", take_default_pool, give_async}, {"flat-array", take_flat_array, give_array}, {"any-node", take_any_node, give_graph},
    {"uploaded", take_uploaded, give_graph}, {"captured", take_captured, give_graph}, {"child", take_child, give_graph},
};

/* Waits for frees in streams, and has the driver let go of what pools and graphs keep for reuse. */
static int settle(void) {
    int result = CALL("cuStreamSynchronize", "cuStreamSynchronize", "cuStreamSynchronize_ptsz", 7000, (void *), (NULL));
    if (!result && pool) result = CALL("cuMemPoolTrimTo", "cuMemPoolTrimTo", NULL, 11020, (void *, size_t), (pool, 0));
    if (!result) result = CALL("cuDeviceGraphMemTrim", "cuDeviceGraphMemTrim", NULL, 11040, (int), (0));
    return result;
}

static int start(void) {
    void *context;
    int result = CALL("cuInit", "cuInit", NULL, 2000, (unsigned), (0));
    if (!result)
        result = CALL("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", NULL, 7000, (void **, int), (&context, 0));
    if (!result) result = CALL("cuCtxSetCurrent", "cuCtxSetCurrent", NULL, 4000, (void *), (context));
    return result;
}

int main(int argc, char **argv) {
    size_t path = 0, paths_count = sizeof paths / sizeof *paths;
    char line[64];
    setvbuf(stdout, NULL, _IOLBF, 0);
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (argc < 3 || argc > 4 || !driver) return 2;
    int most = argc > 3 ? atoi(argv[3]) : MOST;
    if (most < 1 || most > MOST) return 2;
    binding = argv[1];
    while (path < paths_count && strcmp(argv[2], paths[path].name)) path++;
    if (path == paths_count) return 2;
    address_v1 = (int (*)(const char *, void **, int, uint64_t))dlsym(driver, "cuGetProcAddress");
    address_v2 = (int (*)(const char *, void **, int, uint64_t, int *))dlsym(driver, "cuGetProcAddress_v2");
    int started = start();
    if (started) return 3;
    while (fgets(line, sizeof line, stdin)) {
        if (!strncmp(line, "take", 4)) {
            int result = 0, before = count;
            while (count < most && !(result = paths[path].take(count))) count++;
            printf("take %d %d\n", count - before, result);
        } else if (!strncmp(line, "give", 4)) {
            int result = 0;
            while (count) {
                int given = paths[path].give(--count);
                if (!result) result = given;
            }
            int settled = settle();
            printf("give %d\n", result ? result : settled);
        } else if (!strncmp(line, "free", 4)) {
            size_t available = 0, all = 0;
            CALL("cuMemGetInfo", "cuMemGetInfo_v2", NULL, 3020, (size_t *, size_t *), (&available, &all));
            printf("free %zu\n", available);
        }
    }
    return 0;
}

/* A CUDA driver program of stream-ordered memory and graphs that executes commands from its
 * standard input, with one answer a line. It knows nothing of gpushare.
 *
 *   init                    -> init RESULT               cuInit, device 0, its primary context, streams 1 to 3 beside stream 0
 *   alloc BYTES STREAM      -> alloc RESULT              cuMemAllocAsync; the allocation gets the next number, from 0
 *   from POOL BYTES STREAM  -> from RESULT               cuMemAllocFromPoolAsync
 *   linear BYTES            -> linear RESULT             cuMemAlloc
 *   free NUMBER STREAM      -> free RESULT               cuMemFreeAsync
 *   now NUMBER              -> now RESULT                cuMemFree
 *   sync STREAM             -> sync RESULT
 *   sync-all                -> sync-all RESULT           cuCtxSynchronize
 *   keep                    -> keep RESULT               the default pool keeps what is freed
 *   keep-some BYTES         -> keep-some RESULT          it keeps so much
 *   reserved                -> reserved BYTES            of the default pool
 *   pool                    -> pool RESULT               cuMemPoolCreate; the pool gets the next number, from 0
 *   place TYPE WHERE ID     -> place RESULT              the same, of this allocation type and location
 *   named TYPE WHERE ID     -> named RESULT              cuMemGetDefaultMemPool of these, as the next pool
 *   current TYPE WHERE ID   -> current RESULT            cuMemGetMemPool of these, as the next pool
 *   makes-current N TYPE WHERE -> makes-current RESULT   cuMemSetMemPool of pool N there, number 0
 *   own DEVICE              -> own RESULT                cuDeviceGetDefaultMemPool of a device, as the next pool
 *   present DEVICE          -> present RESULT            cuDeviceGetMemPool, the same
 *   second                  -> second RESULT             stream 4, on device 1
 *   close POOL              -> close RESULT              cuMemPoolDestroy
 *   trim POOL               -> trim RESULT               to nothing; pool -1 is the default pool
 *   spin NANOSECONDS STREAM -> spin RESULT               a kernel that takes that long
 *   nodes TYPE LOCATION     -> nodes 0                   allocations of graphs that are made from now on are of these
 *   graph BYTES COUNT       -> graph RESULT              a graph of COUNT allocations that it frees again; instantiated as next graph
 *   captured BYTES STREAM   -> captured RESULT           the same by capturing an allocation and its free
 *   params BYTES FLAGS      -> params NUMBER             the same by cuGraphInstantiateWithParams: 1000 times RESULT, and why, by
 *                                                        what it has written; -1 if other members are changed
 *   update GRAPH BYTES COUNT -> update RESULT            it is updated to a new graph of these, by cuGraphExecUpdate_v2
 *   update-1 GRAPH BYTES COUNT -> update-1 RESULT        by cuGraphExecUpdate
 *   launch GRAPH STREAM     -> launch RESULT
 *   upload GRAPH STREAM     -> upload RESULT             cuGraphUpload
 *   crowd STREAM COUNT      -> crowd RESULT              the stream waits for value 1, gets COUNT kernels, and waits for value 2
 *   behind COUNT FREES      -> behind RESULT             as many further streams wait for value 1; each gets, and frees, so many
 *                                                        allocations of 512 bytes
 *   value NUMBER            -> value RESULT              stream 3 writes the value
 *   post GRAPH STREAM       -> post RESULT               another thread launches the graph
 *   posted                  -> posted RESULT             of that launch; -1 while the thread sleeps in it, -2 while it is awake
 *   drop GRAPH              -> drop RESULT               cuGraphExecDestroy
 *   trim-graphs             -> trim-graphs RESULT        cuDeviceGraphMemTrim
 *   reset                   -> reset RESULT              cuDevicePrimaryCtxReset, and everything is made anew
 *   info                    -> info FREE TOTAL RESULT
 *
 * RESULT is the first CUresult that is not success, as a number. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/driver.h"

typedef unsigned long long dptr;
typedef struct { int type, id; } location;
typedef struct { int type, handles; location where; void *security; size_t max; unsigned short usage; unsigned char rest[54]; } pool_props;
typedef struct { pool_props props; const void *access; size_t count; size_t bytes; dptr at; } alloc_params;

static dptr live[4096];
static void *streams[5], *pools[16], *graphs[64], *function, *context;
static int allocations, pool_count, graph_count, node_type = 1, node_location = 1;

static int begin(void) {
    int device, result;
    if ((result = CALL("cuInit", (unsigned))(0))) return result;
    if ((result = CALL("cuDeviceGet", (int *, int))(&device, 0))) return result;
    if ((result = CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, device))) return result;
    if ((result = CALL("cuCtxSetCurrent", (void *))(context))) return result;
    for (int i = 1; i < 4; i++)
        if ((result = CALL("cuStreamCreate", (void **, unsigned))(&streams[i], 1))) return result;
    function = NULL;
    return 0;
}

/* A stream on device 1, with a context that is not current afterwards. */
static int second(void) {
    int result, back;
    void *there;
    if ((result = CALL("cuDevicePrimaryCtxRetain", (void **, int))(&there, 1))) return result;
    if ((result = CALL("cuCtxSetCurrent", (void *))(there))) return result;
    result = CALL("cuStreamCreate", (void **, unsigned))(&streams[4], 1);
    back = CALL("cuCtxSetCurrent", (void *))(context);
    return result ? result : back;
}

static void *default_pool(void) {
    void *pool = NULL;
    CALL("cuDeviceGetDefaultMemPool", (void **, int))(&pool, 0);
    return pool;
}

static int spin(uint64_t time, int stream) {
    int result;
    void *module, *parameters[] = {&time};
    if (!function) {
        if ((result = CALL("cuModuleLoadData", (void **, const void *))(&module, "any image"))) return result;
        if ((result = CALL("cuModuleGetFunction", (void **, void *, const char *))(&function, module, "spin"))) return result;
    }
    return CALL("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))(
        function, 1, 1, 1, 1, 1, 1, 0, streams[stream], parameters, NULL);
}

static int add_pairs(void *graph, size_t bytes, int count) {
    int result;
    for (int i = 0; i < count; i++) {
        alloc_params params;
        void *node, *end;
        memset(&params, 0, sizeof params);
        params.props.type = node_type;
        params.props.where.type = node_location;
        params.bytes = bytes;
        if ((result = CALL("cuGraphAddMemAllocNode", (void **, void *, const void **, size_t, alloc_params *))(&node, graph, NULL, 0, &params))) return result;
        const void *after[] = {node};
        if ((result = CALL("cuGraphAddMemFreeNode", (void **, void *, const void **, size_t, dptr))(&end, graph, after, 1, params.at))) return result;
    }
    return 0;
}

static int instantiate(void *graph) {
    return CALL("cuGraphInstantiateWithFlags", (void **, void *, uint64_t))(&graphs[graph_count++], graph, 0);
}

static int pairs(void **graph, size_t bytes, int count) {
    int result = CALL("cuGraphCreate", (void **, unsigned))(graph, 0);
    return result ? result : add_pairs(*graph, bytes, count);
}

static int make_graph(size_t bytes, int count) {
    void *graph;
    int result = pairs(&graph, bytes, count);
    return result ? result : instantiate(graph);
}

static int make_graph_by_params(size_t bytes, uint64_t flags) {
    struct { uint64_t flags; void *stream, *node; int why; } params = {flags, streams[1], streams[1], 77};
    void *graph;
    int result = pairs(&graph, bytes, 1);
    if (result) return result;
    result = CALL("cuGraphInstantiateWithParams", (void **, void *, void *))(&graphs[graph_count++], graph, &params);
    if (params.flags != flags || params.stream != streams[1] || params.node) return -1;
    return 1000 * result + params.why;
}

static int update(int number, size_t bytes, int count) {
    struct { int why; void *node, *from; } told;
    void *graph;
    int result = pairs(&graph, bytes, count);
    return result ? result : CALL("cuGraphExecUpdate_v2", (void *, void *, void *))(graphs[number], graph, &told);
}

static int update_as_before_12(int number, size_t bytes, int count) {
    void *graph, *node;
    int why, result = pairs(&graph, bytes, count);
    return result ? result : CALL("cuGraphExecUpdate", (void *, void *, void **, int *))(graphs[number], graph, &node, &why);
}

static int capture(size_t bytes, int stream) {
    void *graph;
    dptr at;
    int result;
    if ((result = CALL("cuStreamBeginCapture_v2", (void *, int))(streams[stream], 0))) return result;
    if ((result = CALL("cuMemAllocAsync", (dptr *, size_t, void *))(&at, bytes, streams[stream]))) return result;
    if ((result = CALL("cuMemFreeAsync", (dptr, void *))(at, streams[stream]))) return result;
    if ((result = CALL("cuStreamEndCapture", (void *, void **))(streams[stream], &graph))) return result;
    return instantiate(graph);
}

static uint32_t *word;

static int values_in(const char *name, void *stream, uint32_t value) {
    int result;
    if (!word && (result = CALL("cuMemHostAlloc", (void **, size_t, unsigned))((void **)&word, 4096, 2))) return result;
    return CALL(name, (void *, dptr, uint32_t, unsigned))(stream, (dptr)(uintptr_t)word, value, 0);
}

static int values(const char *name, int stream, uint32_t value) {
    return values_in(name, streams[stream], value);
}

static int crowd(int stream, int count) {
    int result;
    if ((result = values("cuStreamWaitValue32_v2", stream, 1))) return result;
    for (int i = 0; i < count; i++)
        if ((result = spin(0, stream))) return result;
    return values("cuStreamWaitValue32_v2", stream, 2);
}

static int waits_behind(int count, int frees) {
    static void *further[512];
    int result;
    for (int i = 0; i < count; i++) {
        if ((result = CALL("cuStreamCreate", (void **, unsigned))(&further[i], 1))) return result;
        if ((result = values_in("cuStreamWaitValue32_v2", further[i], 1))) return result;
    }
    for (int i = 0; i < count * frees; i++) {
        dptr at;
        void *stream = further[i % count];
        if ((result = CALL("cuMemAllocAsync", (dptr *, size_t, void *))(&at, 512, stream))) return result;
        if ((result = CALL("cuMemFreeAsync", (dptr, void *))(at, stream))) return result;
    }
    return 0;
}

static struct { void *graph, *stream; atomic_int thread, result; } other;

static void *launch(void *nothing) {
    other.thread = (int)syscall(SYS_gettid);
    int result = CALL("cuCtxSetCurrent", (void *))(context);
    other.result = result ? result : CALL("cuGraphLaunch", (void *, void *))(other.graph, other.stream);
    return nothing;
}

static int post(void *graph, void *stream) {
    pthread_t thread;
    other.graph = graph, other.stream = stream;
    other.thread = 0;
    other.result = -2;
    if (pthread_create(&thread, NULL, launch, NULL)) return -1;
    return pthread_detach(thread);
}

/* The result of the posted launch; before it, whether its thread sleeps. */
static int posted(void) {
    char path[64], state = 0;
    int result = other.result;
    if (result != -2 || !other.thread) return result;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", other.thread);
    FILE *file = fopen(path, "r");
    int found = file ? fscanf(file, "%*d (%*[^)]) %c", &state) : 0;
    if (file) fclose(file);
    return found == 1 && state == 'S' ? -1 : -2;
}

static int make_pool(int type, location where) {
    pool_props props;
    memset(&props, 0, sizeof props);
    props.type = type;
    props.where = where;
    return CALL("cuMemPoolCreate", (void **, const pool_props *))(&pools[pool_count++], &props);
}

static int run(const char *command, long long a, long long b, long long c) {
    int result;
    if (!strcmp(command, "init")) return begin();
    if (!strcmp(command, "alloc")) {
        result = CALL("cuMemAllocAsync", (dptr *, size_t, void *))(&live[allocations], a, streams[b]);
        if (!result) allocations++;
        return result;
    }
    if (!strcmp(command, "from")) {
        result = CALL("cuMemAllocFromPoolAsync", (dptr *, size_t, void *, void *))(&live[allocations], b, pools[a], streams[c]);
        if (!result) allocations++;
        return result;
    }
    if (!strcmp(command, "linear")) {
        result = CALL("cuMemAlloc_v2", (dptr *, size_t))(&live[allocations], a);
        if (!result) allocations++;
        return result;
    }
    if (!strcmp(command, "free")) return CALL("cuMemFreeAsync", (dptr, void *))(live[a], streams[b]);
    if (!strcmp(command, "now")) return CALL("cuMemFree_v2", (dptr))(live[a]);
    if (!strcmp(command, "sync")) return CALL("cuStreamSynchronize", (void *))(streams[a]);
    if (!strcmp(command, "sync-all")) return CALL("cuCtxSynchronize", (void))();
    if (!strcmp(command, "keep")) {
        uint64_t all = UINT64_MAX;
        return CALL("cuMemPoolSetAttribute", (void *, int, void *))(default_pool(), 4, &all);
    }
    if (!strcmp(command, "keep-some")) {
        uint64_t some = (uint64_t)a;
        return CALL("cuMemPoolSetAttribute", (void *, int, void *))(default_pool(), 4, &some);
    }
    if (!strcmp(command, "pool")) return make_pool(1, (location){1, 0});
    if (!strcmp(command, "place")) return make_pool((int)a, (location){(int)b, (int)c});
    if (!strcmp(command, "named")) {
        location where = {(int)b, (int)c};
        return CALL("cuMemGetDefaultMemPool", (void **, location *, int))(&pools[pool_count++], &where, (int)a);
    }
    if (!strcmp(command, "current")) {
        location where = {(int)b, (int)c};
        return CALL("cuMemGetMemPool", (void **, location *, int))(&pools[pool_count++], &where, (int)a);
    }
    if (!strcmp(command, "makes-current")) {
        location where = {(int)c, 0};
        return CALL("cuMemSetMemPool", (location *, int, void *))(&where, (int)b, pools[a]);
    }
    if (!strcmp(command, "own")) return CALL("cuDeviceGetDefaultMemPool", (void **, int))(&pools[pool_count++], (int)a);
    if (!strcmp(command, "present")) return CALL("cuDeviceGetMemPool", (void **, int))(&pools[pool_count++], (int)a);
    if (!strcmp(command, "second")) return second();
    if (!strcmp(command, "close")) return CALL("cuMemPoolDestroy", (void *))(pools[a]);
    if (!strcmp(command, "trim")) return CALL("cuMemPoolTrimTo", (void *, size_t))(a < 0 ? default_pool() : pools[a], 0);
    if (!strcmp(command, "spin")) return spin(a, (int)b);
    if (!strcmp(command, "nodes")) return node_type = (int)a, node_location = (int)b, 0;
    if (!strcmp(command, "graph")) return make_graph(a, (int)b);
    if (!strcmp(command, "params")) return make_graph_by_params(a, b);
    if (!strcmp(command, "captured")) return capture(a, (int)b);
    if (!strcmp(command, "update")) return update((int)a, b, (int)c);
    if (!strcmp(command, "update-1")) return update_as_before_12((int)a, b, (int)c);
    if (!strcmp(command, "launch")) return CALL("cuGraphLaunch", (void *, void *))(graphs[a], streams[b]);
    if (!strcmp(command, "upload")) return CALL("cuGraphUpload", (void *, void *))(graphs[a], streams[b]);
    if (!strcmp(command, "crowd")) return crowd((int)a, (int)b);
    if (!strcmp(command, "behind")) return waits_behind((int)a, (int)b);
    if (!strcmp(command, "value")) return values("cuStreamWriteValue32_v2", 3, (uint32_t)a);
    if (!strcmp(command, "post")) return post(graphs[a], streams[b]);
    if (!strcmp(command, "posted")) return posted();
    if (!strcmp(command, "drop")) return CALL("cuGraphExecDestroy", (void *))(graphs[a]);
    if (!strcmp(command, "trim-graphs")) return CALL("cuDeviceGraphMemTrim", (int))(0);
    if (!strcmp(command, "reset")) {
        result = CALL("cuDevicePrimaryCtxReset_v2", (int))(0);
        return result ? result : begin();
    }
    return -1;
}

int main(void) {
    char line[256], command[64];
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        long long a = 0, b = 0, c = 0;
        if (sscanf(line, "%63s %lld %lld %lld", command, &a, &b, &c) < 1) continue;
        if (!strcmp(command, "reserved")) {
            uint64_t bytes = 0;
            CALL("cuMemPoolGetAttribute", (void *, int, void *))(default_pool(), 5, &bytes);
            printf("reserved %llu\n", (unsigned long long)bytes);
        } else if (!strcmp(command, "info")) {
            size_t free = 0, total = 0;
            int result = CALL("cuMemGetInfo_v2", (size_t *, size_t *))(&free, &total);
            printf("info %zu %zu %d\n", free, total, result);
        } else {
            printf("%s %d\n", command, run(command, a, b, c));
        }
    }
    return 0;
}

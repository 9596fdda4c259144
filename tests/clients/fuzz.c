/* Driver calls of every family, right and wrong ones, and what they answer. It knows nothing of
 * gpushare. The families are in the folder `fuzz`.
 *
 *   fuzz plan SEED COUNT THREADS    COUNT calls a thread that the seed gives, a line each: "THREAD.INDEX NAME CHOICES"
 *   fuzz run FILE                   makes the calls of such lines
 *   fuzz calls                      the names of all calls
 *   fuzz peer SOCKET                the other process of a run that has calls peer_…
 *
 * CHOICES is the number that all arguments of a call derive from. So lines can be left out, and mean
 * the same when the table of calls has grown. The first line of FILE is "threads THREADS".
 *
 * A run prints "THREAD.INDEX NAME RESULT …" a call: the CUresult as a number and the call's results,
 * in a form that does not depend on addresses, time or other processes. Contents are read back and
 * hashed. For a line that ends in "refused" no memory is had: a call that allocates is made, taken
 * back, and told as 2 (out of memory); if it fails by itself its own answer is told. A call of a
 * graph is not made then. The end is "left BEFORE AFTER", the free memory before the first call and
 * after everything was given back (0 0 if the context was lost), and "end".
 *
 * With more than one thread each has its own objects, and makes only calls whose results do not
 * depend on other threads. */
#include "fuzz/base.h"
#include "fuzz/memory.h"
#include "fuzz/vmm.h"
#include "fuzz/ordered.h"
#include "fuzz/array.h"
#include "fuzz/stream.h"
#include "fuzz/graph.h"
#include "fuzz/module.h"
#include "fuzz/context.h"
#include "fuzz/outside.h"

static int begin(struct thread *t) { return CALL("cuMemAlloc_v2", (dptr *, size_t))(&t->fixed, 2 * STATIC); }

/* Gives back all that a thread has; the answers do not matter. */
static void give_back(struct thread *t) {
    void *graph = NULL;
    for (int i = -2; i < SLOTS; i++) {
        void *stream = i == -2 ? NULL : i == -1 ? (void *)2 : t->stream[i];
        if (captures(stream) && !CALL("cuStreamEndCapture", (void *, void **))(stream, &graph)) CALL("cuGraphDestroy", (void *))(graph);
    }
    for (int i = 0; i < SLOTS; i++) {
        if (t->exec[i]) CALL("cuGraphExecDestroy", (void *))(t->exec[i]);
        if (t->graph[i]) CALL("cuGraphDestroy", (void *))(t->graph[i]);
        if (t->object[i]) CALL("cuUserObjectRelease", (void *, unsigned))(t->object[i], 1);
        if (t->ordered[i]) CALL("cuMemFreeAsync", (dptr, void *))(t->ordered[i], stream_of(t, i));
        if (t->context[i]) CALL("cuCtxDestroy_v2", (void *))(t->context[i]);
    }
    CALL("cuCtxSynchronize", (void))();
    for (int i = 0; i < SLOTS; i++) {
        if (t->imported[i]) CALL("cuIpcCloseMemHandle", (dptr))((dptr)(uintptr_t)t->imported[i]);
        if (t->buffer[i]) mem_free(t->buffer[i]);
        if (t->array[i]) CALL("cuArrayDestroy", (void *))(t->array[i]);
        if (t->mipmap[i]) CALL("cuMipmappedArrayDestroy", (void *))(t->mipmap[i]);
        if (t->host[i]) CALL("cuMemFreeHost", (void *))(t->host[i]);
        if (t->mapped[i]) CALL("cuMemUnmap", (dptr, size_t))(t->range[i], 32 * MIB);
        if (t->physical[i]) CALL("cuMemRelease", (unsigned long long))(t->physical[i]);
        if (t->range[i]) CALL("cuMemAddressFree", (dptr, size_t))(t->range[i], 32 * MIB);
        if (t->pool[i]) CALL("cuMemPoolDestroy", (void *))(t->pool[i]);
        if (t->event[i]) CALL("cuEventDestroy_v2", (void *))(t->event[i]);
        if (t->module[i]) CALL("cuModuleUnload", (void *))(t->module[i]);
        if (t->library[i]) CALL("cuLibraryUnload", (void *))(t->library[i]);
        if (t->stream[i]) CALL("cuStreamDestroy_v2", (void *))(t->stream[i]);
    }
    if (t->registered) CALL("cuMemHostUnregister", (void *))(t->registered), munmap(t->registered, 128 << 10);
    mem_free(t->fixed);
    memset(&t->fixed, 0, sizeof *t - offsetof(struct thread, fixed));
}

/* The primary context ends with everything in it, and begins again. */
static int reset(struct thread *t) {
    if (below(t, 2)) return EMPTY;
    give_back(t);
    int result = CALL("cuDevicePrimaryCtxReset_v2", (int))(0), again = OUT_OF_MEMORY;
    /* A program that may not wait is refused until the daemon has seen that the old one is gone. */
    for (int tries = 0; again == OUT_OF_MEMORY && tries < 200; tries++) {
        if (tries) usleep(20000);
        again = CALL("cuDevicePrimaryCtxRetain", (void **, int))(&primary, 0);
    }
    must(again, "cuDevicePrimaryCtxRetain");
    must(CALL("cuCtxSetCurrent", (void *))(primary), "cuCtxSetCurrent");
    int begun = begin(t);
    if (!begun && t->forced) mem_free(t->fixed), t->fixed = 0, begun = OUT_OF_MEMORY;
    return result ? result : begun;
}

/* `alone`: what it answers depends on other threads, or their answers on it. */
static const struct { const char *name; int (*does)(struct thread *); unsigned weight, alone; } calls[] = {
    {"alloc", alloc, 6, 0}, {"alloc_pitch", alloc_pitch, 2, 0}, {"alloc_managed", alloc_managed, 2, 0}, {"free", free_buffer, 4, 0},
    {"fill", fill_buffer, 5, 0}, {"read", read_buffer, 5, 0}, {"write", write_buffer, 2, 0}, {"address_range", address_range, 1, 0},
    {"pointer", pointer_attribute, 1, 0}, {"info", get_info, 1, 0}, {"host_alloc", host_alloc, 1, 0}, {"host_free", host_free, 1, 0},
    {"reserve", reserve, 2, 0}, {"unreserve", unreserve, 1, 0}, {"create", create, 3, 0}, {"release", release, 1, 0}, {"map", map, 3, 0},
    {"set_access", set_access, 2, 0}, {"unmap", unmap, 1, 0}, {"retain", retain, 1, 0}, {"share_handle", share_handle, 1, 0},
    {"alloc_async", alloc_async, 4, 0}, {"alloc_from_pool", alloc_from_pool, 3, 0}, {"alloc_captured", alloc_captured, 2, 0},
    {"free_async", free_async, 5, 0}, {"free_ordered_now", free_ordered_now, 1, 0}, {"pool_create", pool_create, 2, 0},
    {"pool_destroy", pool_destroy, 1, 0}, {"pool_trim", pool_trim, 1, 0}, {"pool_keep", pool_keep, 1, 0},
    {"pool_attribute", pool_attribute, 1, 0}, {"array_create", array_create, 4, 0}, {"array_destroy", array_destroy, 2, 0},
    {"array_describe", array_describe, 1, 0}, {"mipmap_create", mipmap_create, 2, 0}, {"mipmap_level", mipmap_level, 1, 0},
    {"mipmap_destroy", mipmap_destroy, 1, 0}, {"stream_create", stream_create, 4, 0}, {"stream_destroy", stream_destroy, 1, 0},
    {"stream_sync", stream_sync, 2, 0}, {"stream_query", stream_query, 1, 0}, {"stream_flags", stream_flags, 1, 0},
    {"stream_context", stream_context, 1, 0}, {"event_create", event_create, 2, 0}, {"event_destroy", event_destroy, 1, 0},
    {"event_record", event_record, 3, 0}, {"event_query", event_query, 1, 0}, {"event_sync", event_sync, 1, 0},
    {"event_wait", event_wait, 2, 0}, {"event_elapsed", event_elapsed, 1, 0}, {"begin_capture", begin_capture, 3, 0},
    {"end_capture", end_capture, 5, 0}, {"capture_status", capture_status, 1, 0}, {"exchange_mode", exchange_mode, 1, 0},
    {"set_fixed", set_fixed, 3, 0}, {"graph_create", graph_create, 2, 0}, {"graph_destroy", graph_destroy, 1, 0},
    {"graph_memset", graph_memset, 2, 0}, {"graph_empty", graph_empty, 1, 0}, {"graph_memory", graph_memory, 3, 0},
    {"graph_clone", graph_clone, 1, 0}, {"graph_nodes", graph_nodes, 1, 0}, {"instantiate", instantiate, 4, 0},
    {"exec_destroy", exec_destroy, 1, 0}, {"graph_launch", graph_launch, 4, 0}, {"graph_upload", graph_upload, 1, 0},
    {"graph_trim", graph_trim, 1, 0}, {"module_load", module_load, 3, 0}, {"module_unload", module_unload, 1, 1},
    {"get_function", get_function, 3, 0}, {"launch", launch, 8, 0}, {"occupancy", occupancy, 1, 0},
    {"context_create", context_create, 3, 1}, {"context_use", context_use, 2, 1}, {"context_destroy", context_destroy, 1, 1},
    {"context_sync", context_sync, 1, 1}, {"context_device", context_device, 1, 0}, {"context_none", context_none, 1, 0},
    {"primary_again", primary_again, 1, 1}, {"ipc_handle", ipc_handle, 1, 0}, {"ipc_close", ipc_close, 1, 0}, {"monitor", monitor, 1, 0},
    {"copy_buffer", copy_buffer, 3, 0}, {"copy_2d", copy_2d, 2, 0}, {"set_words", set_words, 2, 0}, {"host_register", host_register, 1, 0},
    {"host_unregister", host_unregister, 1, 0}, {"host_told", host_told, 1, 0}, {"pointer_attributes", pointer_attributes, 1, 0},
    {"set_pointer_attribute", set_pointer_attribute, 1, 0}, {"advise", advise, 1, 0}, {"prefetch", prefetch, 1, 0},
    {"range_attribute", range_attribute, 1, 0}, {"granularity", granularity, 1, 0}, {"handle_properties", handle_properties, 1, 0},
    {"get_access", get_access, 1, 0}, {"map_twice", map_twice, 2, 0}, {"fill_ordered", fill_ordered, 2, 0}, {"ordered_burst", ordered_burst, 2, 0},
    {"pool_access", pool_access, 1, 0}, {"pool_export", pool_export, 1, 0}, {"device_pool", device_pool, 1, 1}, {"other_pool", other_pool, 2, 1},
    {"array_plain", array_plain, 3, 0}, {"array_contents", array_contents, 3, 0}, {"array_row", array_row, 1, 1}, {"array_needs", array_needs, 1, 0},
    {"host_function", host_function, 2, 0}, {"callback", callback, 1, 0}, {"write_and_wait", write_and_wait, 2, 0}, {"stream_told", stream_told, 1, 0},
    {"stream_attribute", stream_attribute, 1, 0}, {"stream_copy", stream_copy, 1, 0}, {"stream_attach", stream_attach, 1, 0},
    {"event_record_flags", event_record_flags, 1, 0}, {"stream_abandoned", stream_abandoned, 1, 0}, {"capture_forked", capture_forked, 3, 0},
    {"capture_info", capture_info, 1, 0}, {"capture_into", capture_into, 2, 0}, {"capture_dependencies", capture_dependencies, 1, 0},
    {"graph_kernel", graph_kernel, 2, 0}, {"graph_host", graph_host, 1, 0}, {"graph_copy", graph_copy, 1, 0}, {"graph_event", graph_event, 1, 0},
    {"graph_child", graph_child, 1, 0}, {"graph_edge", graph_edge, 2, 0}, {"graph_told", graph_told, 1, 0}, {"node_destroy", node_destroy, 1, 0},
    {"node_set", node_set, 1, 0}, {"exec_set", exec_set, 1, 0}, {"exec_enable", exec_enable, 1, 0}, {"exec_update", exec_update, 2, 0},
    {"exec_flags", exec_flags, 1, 0}, {"object_create", object_create, 1, 0}, {"object_give", object_give, 1, 0}, {"graph_whole", graph_whole, 2, 0},
    {"launch_fill", launch_fill, 3, 0}, {"launch_ex", launch_ex, 2, 0}, {"launch_cooperative", launch_cooperative, 1, 0},
    {"launch_many", launch_many, 2, 0}, {"function_told", function_told, 1, 0}, {"function_set", function_set, 1, 0},
    {"module_global", module_global, 1, 0}, {"library_load", library_load, 2, 0}, {"library_unload", library_unload, 1, 1},
    {"library_kernel", library_kernel, 2, 0}, {"potential_block", potential_block, 1, 0}, {"fault", fault, 2, 1},
    {"context_fill", context_fill, 2, 1}, {"context_limit", context_limit, 1, 1}, {"context_told", context_told, 1, 1},
    {"context_set", context_set, 1, 1}, {"primary_state", primary_state, 1, 1}, {"device_told", device_told, 1, 0}, {"error_told", error_told, 1, 0},
    {"green", green, 2, 1}, {"reset", reset, 2, 1}, {"peer_open", peer_open, 2, 1}, {"peer_close", peer_close, 1, 1}, {"peer_map", peer_map, 1, 1},
    {"ipc_event", ipc_event, 1, 0}, {"monitor_more", monitor_more, 2, 0}, {"monitor_self", monitor_self, 1, 0},
    {"monitor_again", monitor_again, 1, 0}, {"look_up", look_up, 2, 0}, {"pool_place", pool_place, 2, 0},
};
enum { CALLS = sizeof calls / sizeof *calls };

static unsigned pick(struct thread *t) {
    unsigned all = 0, at;
    for (unsigned i = 0; i < CALLS; i++) all += threads > 1 && calls[i].alone ? 0 : calls[i].weight;
    at = below(t, all);
    for (unsigned i = 0;; i++) {
        unsigned weight = threads > 1 && calls[i].alone ? 0 : calls[i].weight;
        if (at < weight) return i;
        at -= weight;
    }
}

/* The first calls of a sequence, so that most later calls have objects to work on. */
static const char *const furniture[] = {"stream_create", "stream_create", "stream_create", "event_create", "event_create", "module_load",
    "get_function", "module_load", "get_function", "graph_create", "graph_memset", "graph_memset", "graph_kernel", "graph_create", "graph_memory",
    "instantiate", "instantiate", "alloc", "alloc_managed", "fill", "fill", "array_create", "mipmap_create", "pool_create", "reserve", "create",
    "map", "set_access", "pool_place", "alloc_async", "alloc_from_pool", "library_load", "host_alloc"};
enum { FURNITURE = sizeof furniture / sizeof *furniture };

static int plan(u64 seed, int count) {
    for (int number = 0; number < threads; number++) {
        struct thread t = {.seed = mixed(mixed(seed) + (u64)number)};
        for (int index = 0; index < count; index++) {
            t.random = mixed(t.seed + (u64)index * 0x2545f4914f6cdd1d);
            unsigned which = pick(&t);
            for (unsigned i = 0; index < FURNITURE && i < CALLS; i++)
                if (!strcmp(calls[i].name, furniture[index])) which = i;
            printf("%d.%d %s %016llx\n", number, index, calls[which].name, (dptr)t.random);
        }
    }
    return 0;
}

/* The lines of a run, in order. */
static struct line { int thread, index, forced; unsigned which; u64 random; } *lines;
static int line_count;
/* All threads have made their calls: giving back waits for the context, which no stream of another
 * thread may capture then. */
static pthread_barrier_t all_called;

static void *run(void *argument) {
    struct thread *t = argument;
    must(CALL("cuCtxSetCurrent", (void *))(primary), "cuCtxSetCurrent");
    must(begin(t), "cuMemAlloc");
    for (int i = 0; i < line_count; i++) {
        if (lines[i].thread != t->number) continue;
        t->random = lines[i].random, t->forced = lines[i].forced, *t->extra = 0;
        int result = calls[lines[i].which].does(t);
        const char *name = calls[lines[i].which].name;
        if (result == EMPTY) printf("%d.%d %s -\n", t->number, lines[i].index, name);
        else printf("%d.%d %s %d%s%s\n", t->number, lines[i].index, name, result, *t->extra ? " " : "", t->extra);
    }
    pthread_barrier_wait(&all_called);
    give_back(t);
    return NULL;
}

/* Reads a file of lines. Tells whether there are calls for a peer. */
static int read_lines(const char *path) {
    char text[256], name[64], mark[16];
    int peers = 0, most = 0;
    FILE *file = fopen(path, "r");
    if (!file || !fgets(text, sizeof text, file) || sscanf(text, "threads %d", &threads) != 1 || threads < 1 || threads > 16) exit(2);
    while (fgets(text, sizeof text, file)) {
        struct line line = {0};
        dptr random;
        *mark = 0;
        if (sscanf(text, "%d.%d %63s %llx %15s", &line.thread, &line.index, name, &random, mark) < 4 || line.thread >= threads) exit(2);
        while (line.which < CALLS && strcmp(calls[line.which].name, name)) line.which++;
        if (line.which == CALLS) {
            fprintf(stderr, "no call %s\n", name);
            exit(2);
        }
        line.random = random, line.forced = *mark != 0, peers |= !strncmp(name, "peer_", 5);
        if (line_count == most && !(lines = realloc(lines, (size_t)(most = most * 2 + 256) * sizeof *lines))) exit(2);
        lines[line_count++] = line;
    }
    fclose(file);
    return peers;
}

/* Free memory when all work is done and pools and graphs hold no more than they must; 0 if the
 * context is lost. */
static size_t left(void) {
    void *pool = NULL;
    size_t free = 0, total = 0;
    if (CALL("cuCtxSynchronize", (void))()) return 0;
    CALL("cuDeviceGraphMemTrim", (int))(0);
    if (!CALL("cuDeviceGetDefaultMemPool", (void **, int))(&pool, 0)) CALL("cuMemPoolTrimTo", (void *, size_t))(pool, 0);
    return CALL("cuMemGetInfo_v2", (size_t *, size_t *))(&free, &total) ? 0 : free;
}

static int run_file(const char *path) {
    int peers = read_lines(path), socket = peers ? -1 : 0, device = 0, (*nvml_init)(void);
    pid_t child = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    /* Before CUDA begins: its processes must not fork. */
    if (peers) must((socket = start_peer(&child)) < 0 || peer.result, "the peer");
    nvml_init = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
    must(nvml_init(), "nvmlInit");
    must(CALL("cuInit", (unsigned))(0), "cuInit");
    must(CALL("cuDeviceGet", (int *, int))(&device, 0), "cuDeviceGet");
    must(CALL("cuDevicePrimaryCtxRetain", (void **, int))(&primary, device), "cuDevicePrimaryCtxRetain");
    must(CALL("cuCtxSetCurrent", (void *))(primary), "cuCtxSetCurrent");
    size_t before = left();
    struct thread *all = calloc((size_t)threads, sizeof *all);
    if (!all || pthread_barrier_init(&all_called, NULL, (unsigned)threads)) return 2;
    for (int i = 0; i < threads; i++) {
        all[i].number = i;
        must(pthread_create(&all[i].runs, NULL, run, &all[i]), "pthread_create");
    }
    for (int i = 0; i < threads; i++) must(pthread_join(all[i].runs, NULL), "pthread_join");
    CALL("cuCtxSetCurrent", (void *))(primary);
    size_t after = left();
    printf("left %zu %zu\n", after ? before : 0, after);
    if (peers) {
        close(socket);
        int status = 0;
        must(waitpid(child, &status, 0) != child || status, "the peer's end");
    }
    puts("end");
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "calls"))
        for (unsigned i = 0; i < CALLS; i++) puts(calls[i].name);
    if (argc == 2) return 0;
    if (argc == 5 && !strcmp(argv[1], "plan") && (threads = atoi(argv[4])) >= 1) return plan(strtoull(argv[2], NULL, 10), atoi(argv[3]));
    if (argc != 3) return 2;
    driver = dlopen("libcuda.so.1", RTLD_NOW), nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!driver || !nvml) return 2;
    if (!strcmp(argv[1], "peer")) return be_peer(atoi(argv[2]));
    return strcmp(argv[1], "run") ? 2 : run_file(argv[2]);
}

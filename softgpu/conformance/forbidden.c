// Calls that are forbidden while a stream captures, by calling thread, and the state of the capture afterwards.
//
// Each of these calls is made while a non-blocking stream captures in global mode: its answer, and the capture's state after it
// (1: active, 2: invalidated). Some calls are here because no source says whether they are forbidden.
#include "facts.h"

enum { GLOBAL, THREAD_LOCAL, RELAXED };
enum { RELEASE_THRESHOLD = 4, RESERVED = 5 };
enum { GRAPH_RESERVED = 2 };

extern const char *const MODULE_PTX;

static handle stream, other, event, module, context, pool;
static address memory, spare, pooled;

static handle new_event(void) {
    handle it = NULL;
    must("cuEventCreate", CU(cuEventCreate, &it, 2));
    return it;
}

static result event_query(void) { return CU(cuEventQuery, event); }
static result event_synchronize(void) { return CU(cuEventSynchronize, event); }
static result event_create(void) {
    handle it;
    return CU(cuEventCreate, &it, 2);
}
static result event_record(void) { return CU(cuEventRecord, event, other); }
static result event_destroy(void) {
    result answer = CU(cuEventDestroy_v2, event);
    event = NULL;
    return answer;
}
static result stream_query(void) { return CU(cuStreamQuery, other); }
static result stream_synchronize(void) { return CU(cuStreamSynchronize, other); }
static result stream_create(void) {
    handle it;
    return CU(cuStreamCreate, &it, 1);
}
static result stream_context(void) {
    handle it;
    return CU(cuStreamGetCtx, stream, &it);
}
static result stream_id(void) {
    unsigned long long id;
    return CU(cuStreamGetId, stream, &id);
}
static result stream_id_elsewhere(void) {
    unsigned long long id;
    return CU(cuStreamGetId, other, &id);
}
static result legacy_status(void) {
    int status;
    return CU(cuStreamIsCapturing, NULL, &status);
}
static result alloc(void) { return CU(cuMemAlloc_v2, &spare, (size_t)512); }
static result release(void) {
    result answer = CU(cuMemFree_v2, memory);
    if (!answer) memory = 0;
    return answer;
}
static result alloc_managed(void) { return CU(cuMemAllocManaged, &spare, (size_t)512, 1); }
static result alloc_host(void) {
    handle at;
    return CU(cuMemAllocHost_v2, &at, (size_t)512);
}
static result alloc_async(void) { return CU(cuMemAllocAsync, &spare, (size_t)512, other); }
static result free_async(void) { return CU(cuMemFreeAsync, pooled, other); }
static result copy(void) {
    char byte;
    return CU(cuMemcpyDtoH_v2, &byte, memory, (size_t)1);
}
static result fill(void) { return CU(cuMemsetD8_v2, memory, 1, (size_t)1); }
static result memory_info(void) {
    size_t free, total;
    return CU(cuMemGetInfo_v2, &free, &total);
}
static result pool_current(void) {
    handle it;
    return CU(cuDeviceGetMemPool, &it, 0);
}
static result pool_get(void) {
    unsigned long long bytes;
    return CU(cuMemPoolGetAttribute, pool, RESERVED, &bytes);
}
static result pool_set(void) {
    unsigned long long bytes = 0;
    return CU(cuMemPoolSetAttribute, pool, RELEASE_THRESHOLD, &bytes);
}
static result pool_trim(void) { return CU(cuMemPoolTrimTo, pool, (size_t)0); }
static result graph_memory(void) {
    unsigned long long bytes;
    return CU(cuDeviceGetGraphMemAttribute, 0, GRAPH_RESERVED, &bytes);
}
static result graph_trim(void) { return CU(cuDeviceGraphMemTrim, 0); }
static result unload(void) { return CU(cuModuleUnload, module); }
static result context_current(void) {
    handle it;
    return CU(cuCtxGetCurrent, &it);
}
static result context_push(void) {
    handle it;
    result answer = CU(cuCtxPushCurrent_v2, context);
    return answer ? answer : CU(cuCtxPopCurrent_v2, &it);
}
static result context_synchronize(void) { return CU(cuCtxSynchronize, 0); }
static result primary_state(void) {
    unsigned flags;
    int active;
    return CU(cuDevicePrimaryCtxGetState, 0, &flags, &active);
}

// Memory of its own for each call of virtual memory management, made before the capture.
static address free_range, range_to_map, range_to_allow, range_to_unmap;
static unsigned long long to_map, to_release, created;
enum { GRAIN = 2 << 20 };

static const struct { int type, handles, location_type, location; void *windows; unsigned char flags[8]; } PHYSICAL = {.type = 1, .location_type = 1};

static address reserved(void) {
    address at = 0;
    must("cuMemAddressReserve", CU(cuMemAddressReserve, &at, (size_t)GRAIN, (size_t)0, (address)0, 0ULL));
    return at;
}

static unsigned long long physical(void) {
    unsigned long long it = 0;
    must("cuMemCreate", CU(cuMemCreate, &it, (size_t)GRAIN, &PHYSICAL, 0ULL));
    return it;
}

static address mapped(void) {
    address at = reserved();
    must("cuMemMap", CU(cuMemMap, at, (size_t)GRAIN, (size_t)0, physical(), 0ULL));
    return at;
}

static void prepare_mappings(void) {
    free_range = reserved();
    range_to_map = reserved();
    range_to_allow = mapped();
    range_to_unmap = mapped();
    to_map = physical();
    to_release = physical();
}

static result address_reserve(void) {
    address at;
    return CU(cuMemAddressReserve, &at, (size_t)GRAIN, (size_t)0, (address)0, 0ULL);
}
static result address_free(void) { return CU(cuMemAddressFree, free_range, (size_t)GRAIN); }
static result physical_create(void) { return CU(cuMemCreate, &created, (size_t)GRAIN, &PHYSICAL, 0ULL); }
static result physical_release(void) { return CU(cuMemRelease, to_release); }
static result map(void) { return CU(cuMemMap, range_to_map, (size_t)GRAIN, (size_t)0, to_map, 0ULL); }
static result set_access(void) {
    struct { int location_type, location, flags; } access = {1, 0, 3};
    return CU(cuMemSetAccess, range_to_allow, (size_t)GRAIN, &access, (size_t)1);
}
static result unmap(void) { return CU(cuMemUnmap, range_to_unmap, (size_t)GRAIN); }
static result host_register(void) {
    static unsigned char page[2 * 4096];
    return CU(cuMemHostRegister_v2, page, (size_t)4096, 0u);
}
static result module_load(void) {
    handle it;
    return CU(cuModuleLoadData, &it, MODULE_PTX);
}
static result stream_device(void) {
    int ordinal;
    return CU(cuStreamGetDevice, stream, &ordinal);
}

static const struct row {
    const char *name;
    result (*call)(void);
} rows[] = {
    {"event_query", event_query}, {"event_synchronize", event_synchronize}, {"event_create", event_create},
    {"event_record_elsewhere", event_record}, {"event_destroy", event_destroy}, {"stream_query", stream_query},
    {"stream_synchronize", stream_synchronize}, {"stream_create", stream_create}, {"stream_context", stream_context},
    {"stream_id", stream_id}, {"stream_id_elsewhere", stream_id_elsewhere}, {"legacy_status", legacy_status}, {"alloc", alloc}, {"free", release},
    {"alloc_managed", alloc_managed}, {"alloc_host", alloc_host}, {"alloc_async_elsewhere", alloc_async},
    {"free_async_elsewhere", free_async}, {"copy", copy}, {"fill", fill}, {"memory_info", memory_info},
    {"pool_current", pool_current}, {"pool_get_attribute", pool_get}, {"pool_set_attribute", pool_set}, {"pool_trim", pool_trim},
    {"graph_memory_attribute", graph_memory}, {"graph_memory_trim", graph_trim}, {"unload", unload},
    {"context_current", context_current}, {"context_push", context_push}, {"context_synchronize", context_synchronize},
    {"primary_state", primary_state}, {"address_reserve", address_reserve}, {"address_free", address_free},
    {"physical_create", physical_create}, {"physical_release", physical_release}, {"map", map}, {"set_access", set_access},
    {"unmap", unmap}, {"host_register", host_register}, {"module_load", module_load},
};

// Prints the result of `row` during a capture, and the capture's state afterwards.
static void in_capture(const char *who, const struct row *row, void (*by)(void *), int mode) {
    char fact[96];
    struct { const struct row *row; result answer; } asked = {row, 0};
    int status = 9;
    handle graph = NULL;
    if (!event) event = new_event();
    if (!memory) must("cuMemAlloc", CU(cuMemAlloc_v2, &memory, (size_t)4096));
    must("cuStreamBeginCapture", CU(cuStreamBeginCapture_v2, stream, mode));
    by(&asked);
    snprintf(fact, sizeof fact, "%s.%s", who, row->name);
    say_result(fact, asked.answer);
    CU(cuStreamIsCapturing, stream, &status);
    snprintf(fact, sizeof fact, "%s.%s.leaves", who, row->name);
    say_number(fact, status);
    CU(cuStreamEndCapture, stream, &graph);
    if (graph) CU(cuGraphDestroy, graph);
}

static void here(void *argument) {
    struct { const struct row *row; result answer; } *asked = argument;
    asked->answer = asked->row->call();
}

static void in_other_thread(void *argument) {
    must("cuCtxSetCurrent", CU(cuCtxSetCurrent, context));
    here(argument);
}

static void in_mode(void *argument, int wanted) {
    must("cuCtxSetCurrent", CU(cuCtxSetCurrent, context));
    must("cuThreadExchangeStreamCaptureMode", CU(cuThreadExchangeStreamCaptureMode, &wanted));
    here(argument);
    CU(cuThreadExchangeStreamCaptureMode, &wanted);
}

static void relaxed(void *argument) { in_mode(argument, RELAXED); }
static void thread_local_mode(void *argument) { in_mode(argument, THREAD_LOCAL); }

static void elsewhere(void *argument) { in_thread(in_other_thread, argument); }
static void elsewhere_thread_local(void *argument) { in_thread(thread_local_mode, argument); }

static const struct row *row_of(const char *name) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].name, name)) return &rows[i];
    must(name, 1);
    return NULL;
}

// Destroys a stream that joined a capture and has work in it; `back`: it is joined back first.
static void joined_and_destroyed(const char *fact, int back) {
    handle joined = NULL, graph = NULL, fork = new_event(), join = new_event();
    must("cuStreamCreate", CU(cuStreamCreate, &joined, 1));
    must("cuStreamBeginCapture", CU(cuStreamBeginCapture_v2, stream, GLOBAL));
    CU(cuEventRecord, fork, stream);
    CU(cuStreamWaitEvent, joined, fork, 0);
    CU(cuMemsetD8Async, memory, 1, (size_t)16, joined);
    CU(cuEventRecord, join, joined);
    if (back) CU(cuStreamWaitEvent, stream, join, 0);
    CU(cuStreamDestroy_v2, joined);
    result answer = CU(cuStreamEndCapture, stream, &graph);
    if (back) say_result(fact, answer);
    else say_bool(fact, answer != 0);
    if (graph) CU(cuGraphDestroy, graph);
}

// Queries an event that a capture has recorded, from a thread in `mode`.
static void captured_event(const char *fact, int mode) {
    handle graph = NULL, recorded = new_event();
    int status = 9, was = mode;
    char leaves[96];
    must("cuStreamBeginCapture", CU(cuStreamBeginCapture_v2, stream, mode == GLOBAL ? GLOBAL : THREAD_LOCAL));
    CU(cuEventRecord, recorded, stream);
    CU(cuThreadExchangeStreamCaptureMode, &was);
    say_result(fact, CU(cuEventQuery, recorded));
    CU(cuThreadExchangeStreamCaptureMode, &was);
    CU(cuStreamIsCapturing, stream, &status);
    snprintf(leaves, sizeof leaves, "%s.leaves", fact);
    say_number(leaves, status);
    CU(cuStreamEndCapture, stream, &graph);
    if (graph) CU(cuGraphDestroy, graph);
}

// The time from an event to one that a capture has recorded.
static void captured_elapsed(void) {
    handle graph = NULL, live = NULL, recorded = NULL;
    float milliseconds = 0;
    int status = 9;
    must("cuEventCreate", CU(cuEventCreate, &live, 0));
    must("cuEventCreate", CU(cuEventCreate, &recorded, 0));
    must("cuEventRecord", CU(cuEventRecord, live, other));
    must("cuEventRecord", CU(cuEventRecord, recorded, other));
    must("cuStreamSynchronize", CU(cuStreamSynchronize, other));
    must("cuStreamBeginCapture", CU(cuStreamBeginCapture_v2, stream, RELAXED));
    CU(cuEventRecord, recorded, stream);
    say_result("captured_elapsed", CU(cuEventElapsedTime, &milliseconds, live, recorded));
    CU(cuStreamIsCapturing, stream, &status);
    say_number("captured_elapsed.leaves", status);
    CU(cuStreamEndCapture, stream, &graph);
    if (graph) CU(cuGraphDestroy, graph);
}

void forbidden_facts(void) {
    context = begin();
    must("cuStreamCreate", CU(cuStreamCreate, &stream, 1));
    must("cuStreamCreate", CU(cuStreamCreate, &other, 1));
    must("cuModuleLoadData", CU(cuModuleLoadData, &module, MODULE_PTX));
    must("cuMemAlloc", CU(cuMemAlloc_v2, &memory, (size_t)4096));
    must("cuMemAllocAsync", CU(cuMemAllocAsync, &pooled, (size_t)4096, other));
    must("cuDeviceGetDefaultMemPool", CU(cuDeviceGetDefaultMemPool, &pool, 0));
    prepare_mappings();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) in_capture("global", &rows[i], here, GLOBAL);
    static const char *const device_facts[] = {"global.stream_device", "global.stream_device.leaves", NULL};
    if (!lacks("cuStreamGetDevice", device_facts)) {
        struct row row = {"stream_device", stream_device};
        in_capture("global", &row, here, GLOBAL);
    }
    const char *again[] = {"event_query", "alloc", "pool_get_attribute", "memory_info", "stream_synchronize",
                           "stream_id", "stream_id_elsewhere", "alloc_async_elsewhere"};
    for (size_t i = 0; i < sizeof again / sizeof *again; i++) {
        const struct row *row = row_of(again[i]);
        in_capture("global_elsewhere", row, elsewhere, GLOBAL);
        in_capture("global_elsewhere_thread_local", row, elsewhere_thread_local, GLOBAL);
        in_capture("global_relaxed_thread", row, relaxed, GLOBAL);
        in_capture("thread_local", row, here, THREAD_LOCAL);
        in_capture("thread_local_elsewhere", row, elsewhere, THREAD_LOCAL);
        in_capture("relaxed", row, here, RELAXED);
    }
    captured_event("captured_event.global", GLOBAL);
    captured_event("captured_event.thread_local", THREAD_LOCAL);
    captured_event("captured_event.relaxed", RELAXED);
    captured_elapsed();
    joined_and_destroyed("destroyed.joined_back", 1);
    joined_and_destroyed("destroyed.not_joined_back_fails", 0);
}

// Threads and contexts that share an engine: a full stream, and events during another context's work.
#include "facts.h"

#include <pthread.h>
#include <unistd.h>

// Far more operations than a stream queues without waiting.
enum { MANY = 100000 };
// A call that has not returned after this time counts as waiting (us).
enum { QUIET = 300000 };

static handle context, idle, event, done, full;
static address memory;
static volatile int filled, recorded, queried;
static result query_result = -1;

static void *fill_stream(void *nothing) {
    CU(cuCtxSetCurrent, context);
    for (int i = 0; i < MANY && !CU(cuMemsetD32Async, memory, 1u, (size_t)4, full); i++) filled = i + 1;
    return nothing;
}

static void *record_event(void *nothing) {
    CU(cuCtxSetCurrent, context);
    CU(cuEventRecord, event, idle);
    recorded = 1;
    return nothing;
}

static void *query_event(void *nothing) {
    CU(cuCtxSetCurrent, context);
    query_result = CU(cuEventQuery, done);
    queried = 1;
    return nothing;
}

// Whether a thread comes to its end, however long a busy machine holds it up.
static int comes(volatile int *end) {
    for (int ms = 0; ms < 10000 && !*end; ms++) usleep(1000);
    return *end;
}

// One thread fills a blocked stream; then two other threads record and query events of another stream.
void room_facts(void) {
    pthread_t filler, recorder, querier;
    uint32_t *word = NULL;
    int before;
    context = begin();
    must("cuStreamCreate", CU(cuStreamCreate, &full, 1));
    must("cuStreamCreate", CU(cuStreamCreate, &idle, 1));
    must("cuEventCreate", CU(cuEventCreate, &event, 0));
    must("cuEventCreate", CU(cuEventCreate, &done, 0));
    must("cuMemAlloc", CU(cuMemAlloc_v2, &memory, (size_t)4096));
    must("cuMemHostAlloc", CU(cuMemHostAlloc, (void **)&word, (size_t)4096, 2u));
    *(volatile uint32_t *)word = 0;
    CU(cuEventRecord, done, idle);
    CU(cuEventSynchronize, done);
    must("cuStreamWaitValue32", CU(cuStreamWaitValue32_v2, full, (address)(uintptr_t)word, 1u, 0u));
    pthread_create(&filler, NULL, fill_stream, NULL);
    do {
        before = filled;
        usleep(QUIET);
    } while (filled != before);
    say_bool("a_full_stream_waits", filled < MANY);
    pthread_create(&querier, NULL, query_event, NULL);
    say_bool("others_query", comes(&queried));
    pthread_create(&recorder, NULL, record_event, NULL);
    say_bool("others_record", comes(&recorded));
    *(volatile uint32_t *)word = 1;
    pthread_join(recorder, NULL);
    pthread_join(querier, NULL);
    pthread_join(filler, NULL);
    say_result("the_query", query_result);
    say_bool("all_is_submitted", filled == MANY);
    say_result("synchronize", CU(cuCtxSynchronize));
}

// PTX for spin(uint64 ns): loops until the device's timer has advanced by ns.
static const char *const SPIN_PTX =
    ".version 7.0\n.target sm_52\n.address_size 64\n"
    ".visible .entry spin(.param .u64 ns) {\n"
    ".reg .pred %p<2>; .reg .b64 %rd<5>;\n"
    "ld.param.u64 %rd1, [ns]; mov.u64 %rd2, %globaltimer;\n"
    "LOOP: mov.u64 %rd3, %globaltimer; sub.u64 %rd4, %rd3, %rd2; setp.lt.u64 %p1, %rd4, %rd1; @%p1 bra LOOP;\n"
    "ret;\n}\n";

static handle spin_function(void) {
    handle module = NULL, function = NULL;
    must("cuModuleLoadData", CU(cuModuleLoadData, &module, SPIN_PTX));
    must("cuModuleGetFunction", CU(cuModuleGetFunction, &function, module, "spin"));
    return function;
}

static void spin(handle function, handle stream, unsigned long long ns) {
    void *parameters[] = {&ns};
    must("cuLaunchKernel", CU(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

// Pairs of events around kernels of 200 us, during 2 s of kernels of another context of this process.
// A busy machine may hold up the pairs: they are made several times.
void turn_facts(void) {
    enum { PAIRS = 20 };
    handle other = NULL, busy = NULL, stream = NULL, first = NULL, second = NULL;
    handle own = begin(), function = spin_function();
    must("cuStreamCreate", CU(cuStreamCreate, &stream, 1));
    must("cuEventCreate", CU(cuEventCreate, &first, 0));
    must("cuEventCreate", CU(cuEventCreate, &second, 0));
    spin(function, stream, 1000);
    CU(cuStreamSynchronize, stream);
    must("cuCtxCreate", CU(cuCtxCreate_v2, &other, 0, 0));
    must("cuStreamCreate", CU(cuStreamCreate, &busy, 1));
    handle others = spin_function();
    int alone = 0, is_busy = 0;
    for (int tries = 0; tries < 5 && !(is_busy && alone > PAIRS / 2); tries++) {
        must("cuCtxSetCurrent", CU(cuCtxSetCurrent, other));
        for (int i = 0; i < 400; i++) spin(others, busy, 5000000);
        must("cuCtxSetCurrent", CU(cuCtxSetCurrent, own));
        alone = 0;
        for (int i = 0; i < PAIRS; i++) {
            float elapsed = 0;
            CU(cuEventRecord, first, stream);
            spin(function, stream, 200000);
            CU(cuEventRecord, second, stream);
            CU(cuEventSynchronize, second);
            must("cuEventElapsedTime", CU(cuEventElapsedTime, &elapsed, first, second));
            alone += elapsed < 0.4f;
        }
        must("cuCtxSetCurrent", CU(cuCtxSetCurrent, other));
        is_busy = CU(cuStreamQuery, busy) != 0;
        must("cuStreamSynchronize", CU(cuStreamSynchronize, busy));
    }
    say_bool("the_other_is_still_busy", is_busy);
    say_bool("most_pairs_tell_the_kernel_alone", alone > PAIRS / 2);
}

typedef result call(address, void *, size_t);

static result up(address at, void *host, size_t bytes) { return CU(cuMemcpyHtoD_v2, at, host, bytes); }
static result down(address at, void *host, size_t bytes) { return CU(cuMemcpyDtoH_v2, host, at, bytes); }
static result fill(address at, void *host, size_t bytes) { return (void)host, CU(cuMemsetD8_v2, at, 1, bytes); }
// Asynchronous, in the stream of the kernel.
static handle upload_stream;
static result later(address at, void *host, size_t bytes) { return CU(cuMemcpyHtoDAsync_v2, at, host, bytes, upload_stream); }
static result within(address at, void *host, size_t bytes) { return (void)host, CU(cuMemcpyDtoD_v2, at, at + bytes, bytes); }

// Whether a call returns while a kernel of 20 ms runs in a stream that the legacy stream waits for. A call that waits never does; one
// that does not may be held up by the host, so it is made several times. The first call sets up what the driver needs, and may wait.
static void along(const char *stream_name, const char *name, handle function, handle stream, call *call, address at, void *host, size_t bytes) {
    char fact[64];
    int busy = 0;
    handle over = NULL;
    snprintf(fact, sizeof fact, "%s.%s", stream_name, name);
    must("cuEventCreate", CU(cuEventCreate, &over, 0u));
    must(fact, call(at, host, bytes));
    must("cuCtxSynchronize", CU(cuCtxSynchronize));
    for (int i = 0; i < 10 && !busy; i++) {
        spin(function, stream, 20000000);
        // Not the stream: the call's own transfer may be under way in it.
        must("cuEventRecord", CU(cuEventRecord, over, stream));
        must(fact, call(at, host, bytes));
        busy = CU(cuEventQuery, over) != 0;
        must("cuCtxSynchronize", CU(cuCtxSynchronize));
    }
    must("cuEventDestroy", CU(cuEventDestroy_v2, over));
    say_bool(fact, busy);
}

// Which synchronous functions, and which uploads of asynchronous ones, return before the work of the streams that they wait for is
// complete.
void along_facts(void) {
    enum { SMALL = 65536, LARGE = SMALL + 4 };
    static char pageable[LARGE];
    struct { const char *name; handle stream; } streams[] = {{"blocking", NULL}, {"legacy", NULL}, {"per_thread", (handle)2}};
    address at = 0;
    void *pinned = NULL;
    begin();
    handle function = spin_function();
    must("cuStreamCreate", CU(cuStreamCreate, &streams[0].stream, 0));
    must("cuMemAlloc", CU(cuMemAlloc_v2, &at, (size_t)2 * LARGE));
    must("cuMemHostAlloc", CU(cuMemHostAlloc, &pinned, (size_t)LARGE, 0u));
    for (int i = 0; i < 3; i++) {
        const char *name = streams[i].name;
        handle stream = streams[i].stream;
        along(name, "upload_of_4_bytes", function, stream, up, at, pageable, 4);
        along(name, "upload_of_64_KiB", function, stream, up, at, pageable, SMALL);
        along(name, "larger_upload", function, stream, up, at, pageable, LARGE);
        along(name, "pinned_upload_of_4_bytes", function, stream, up, at, pinned, 4);
        along(name, "pinned_upload_of_64_KiB", function, stream, up, at, pinned, SMALL);
        along(name, "larger_pinned_upload", function, stream, up, at, pinned, LARGE);
        along(name, "download_of_4_bytes", function, stream, down, at, pageable, 4);
        along(name, "memset", function, stream, fill, at, pageable, SMALL);
        along(name, "copy_within", function, stream, within, at, pageable, SMALL);
        upload_stream = stream;
        along(name, "async_upload_of_4_bytes", function, stream, later, at, pageable, 4);
        along(name, "async_upload_of_64_KiB", function, stream, later, at, pageable, SMALL);
        along(name, "larger_async_upload", function, stream, later, at, pageable, LARGE);
        along(name, "pinned_async_upload", function, stream, later, at, pinned, LARGE);
    }
}

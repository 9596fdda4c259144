// Managed memory that leaves its device: what the device has free then, and whether the next touch brings it back.
//
// It is back if a memset then takes about as long as one of plain memory: over the link it takes tens of times as long.
#include "facts.h"

enum { LAST_PREFETCH = 4, PREFER = 3, LET_ACCESS = 5, HOST = -1 };
// Bytes of managed memory, and of free memory that a device may gain or lose beside them.
static const size_t SIZE = (size_t)256 << 20, SLACK = (size_t)64 << 20;

// PTX for touch(uint64 at): each thread writes a word, 4 KiB behind that of the thread before it.
const char *const TOUCH_PTX =
    ".version 7.0\n.target sm_52\n.address_size 64\n"
    ".visible .entry touch(.param .u64 at) {\n"
    ".reg .b32 %r<5>; .reg .b64 %rd<4>;\n"
    "ld.param.u64 %rd1, [at]; cvta.to.global.u64 %rd1, %rd1;\n"
    "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;\n"
    "mul.wide.u32 %rd2, %r4, 4096; add.u64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r4;\n"
    "ret;\n}\n";

static handle function, stream, first, last;
// Each number lets what was submitted behind it begin.
static volatile uint32_t *word;
static uint32_t number;
// The least time of a memset of plain memory (ms).
static float shortest = 1e9f;

// Freed memory may be back later: an H200 showed 64 MiB as free 0.36 ms after they were unmapped.
static const double LATER = 5e3;  // us

static size_t available(void) {
    size_t of = 0, total = 0;
    double end = microseconds() + LATER;
    do
        must("cuMemGetInfo", LOOK(cuMemGetInfo_v2, &of, &total));
    while (microseconds() < end);
    return of;
}

static void by_a_kernel(address at) {
    void *parameters[] = {&at};
    must("cuLaunchKernel", CU(cuLaunchKernel, function, (int)(SIZE >> 20), 1, 1, 256, 1, 1, 0, stream, parameters, NULL));
}

static void by_a_memset(address at) { must("cuMemsetD8Async", CU(cuMemsetD8Async, at, 7, SIZE, stream)); }

// The time of one memset (ms). It begins when all is submitted, so that the host's delays are not in it.
static float memset_time(address at) {
    float time = 0;
    must("cuStreamWaitValue32", CU(cuStreamWaitValue32_v2, stream, (address)(uintptr_t)word, ++number, 0u));
    must("cuEventRecord", CU(cuEventRecord, first, stream));
    by_a_memset(at);
    must("cuEventRecord", CU(cuEventRecord, last, stream));
    *word = number;
    must("cuEventSynchronize", CU(cuEventSynchronize, last));
    must("cuEventElapsedTime", CU(cuEventElapsedTime, &time, first, last));
    return time;
}

// Whether all is on the device once it was touched.
static int comes(void (*touch)(address), address at) {
    touch(at);
    must("cuCtxSynchronize", CU(cuCtxSynchronize));
    return memset_time(at) < 8 * shortest;
}

static int last_prefetch(address at) {
    int where = 77;
    CU(cuMemRangeGetAttribute, &where, (size_t)4, LAST_PREFETCH, at, SIZE);
    return where;
}

static result move(address at, int where) {
    result answer = CU(cuMemPrefetchAsync, at, SIZE, where, NULL);
    must("cuCtxSynchronize", CU(cuCtxSynchronize));
    return answer;
}

// Some is made, and is on the device.
static address made(int advised) {
    address at = 0;
    must("cuMemAllocManaged", CU(cuMemAllocManaged, &at, SIZE, 1u));
    if (advised) {
        must("cuMemAdvise", CU(cuMemAdvise, at, SIZE, PREFER, 0));
        must("cuMemAdvise", CU(cuMemAdvise, at, SIZE, LET_ACCESS, 0));
    }
    must("cuMemPrefetchAsync", move(at, 0));
    return at;
}

// The engines and the module have what they take before anything is measured.
static void prepare(void) {
    handle module = NULL;
    address plain = 0;
    begin();
    must("cuModuleLoadData", CU(cuModuleLoadData, &module, TOUCH_PTX));
    must("cuModuleGetFunction", CU(cuModuleGetFunction, &function, module, "touch"));
    must("cuStreamCreate", CU(cuStreamCreate, &stream, 1));
    must("cuMemHostAlloc", CU(cuMemHostAlloc, (void **)&word, (size_t)4096, 2u));
    *word = 0;
    must("cuEventCreate", CU(cuEventCreate, &first, 0u));
    must("cuEventCreate", CU(cuEventCreate, &last, 0u));
    must("cuMemAlloc", CU(cuMemAlloc_v2, &plain, SIZE));
    by_a_kernel(plain);
    for (int i = 0; i < 4; i++) {
        float time = memset_time(plain);
        if (time < shortest) shortest = time;
    }
    must("cuMemFree", CU(cuMemFree_v2, plain));
    address at = made(0);
    comes(by_a_kernel, at);
    must("cuMemPrefetchAsync", move(at, HOST));
    must("cuMemFree", CU(cuMemFree_v2, at));
}

static const char *named(const char *set, const char *fact) {
    static char name[96];
    snprintf(name, sizeof name, "%s.%s", set, fact);
    return name;
}

static void home(const char *set, int advised) {
    size_t before = available();
    address at = made(advised);
    say_bool(named(set, "on_the_device_it_takes_memory"), available() + SIZE - SLACK <= before);
    say_result(named(set, "prefetch_home"), move(at, HOST));
    say_bool(named(set, "at_home_it_takes_none"), available() + SLACK >= before);
    say_number(named(set, "last_prefetch"), last_prefetch(at));
    say_bool(named(set, "a_kernel_brings_it_back"), comes(by_a_kernel, at));
    say_number(named(set, "last_prefetch_then"), last_prefetch(at));
    say_bool(named(set, "it_takes_memory_then"), available() + SIZE - SLACK <= before);
    must("cuMemPrefetchAsync", move(at, HOST));
    say_bool(named(set, "a_memset_brings_it_back"), comes(by_a_memset, at));
    must("cuMemPrefetchAsync", move(at, HOST));
    say_result(named(set, "prefetch_again"), move(at, 0));
    say_bool(named(set, "a_prefetch_brings_it_back"), memset_time(at) < 8 * shortest);
    must("cuMemPrefetchAsync", move(at, HOST));
    say_result(named(set, "free"), CU(cuMemFree_v2, at));
    say_bool(named(set, "freed_it_takes_none"), available() + SLACK >= before);
}

void home_facts(void) {
    prepare();
    home("unadvised", 0);
    home("advised", 1);
}

// One allocation of as much as was free, and its end.
static void take(const char *fact, size_t bytes) {
    address all = 0;
    result answer = CU(cuMemAlloc_v2, &all, bytes);
    say_result(fact, answer);
    if (!answer) must("cuMemFree", CU(cuMemFree_v2, all));
}

static void full(const char *set, int advised, size_t before) {
    size_t nearly = before - SIZE / 2;
    address at = made(advised);
    must("cuMemPrefetchAsync", move(at, HOST));
    take(named(set, "alloc_of_nearly_all_while_it_is_home"), nearly);
    say_bool(named(set, "it_takes_none_then"), available() + SLACK >= before);
    say_bool(named(set, "a_kernel_brings_it_back"), comes(by_a_kernel, at));
    say_bool(named(set, "it_takes_memory_then"), available() + SIZE - SLACK <= before);
    take(named(set, "alloc_of_nearly_all_while_it_is_on_the_device"), nearly);
    say_bool(named(set, "it_takes_less_then"), available() + SIZE - SLACK > before);
    say_bool(named(set, "what_has_left_comes_back"), comes(by_a_kernel, at));
    say_bool(named(set, "it_takes_all_again"), available() + SIZE - SLACK <= before);
    must("cuMemFree", CU(cuMemFree_v2, at));
}

// The same with nearly all of the device taken by plain memory: nobody else should use it meanwhile.
void full_facts(void) {
    prepare();
    size_t before = available();
    take("alloc_of_nearly_all", before - SIZE / 2);
    full("unadvised", 0, before);
    full("advised", 1, before);
}

// What keeps physical memory beside its first handle, and what a reset of the primary context leaves: by the device's free memory, so
// that nothing else may use the device meanwhile.
#include "facts.h"

#include <unistd.h>

enum { POSIX_FILE = 1 };
static const size_t BYTES = 512ull << 20;

struct properties {
    int type, handles, location_type, location_id;
    void *metadata;
    unsigned char flags[8];
};

// A driver may free later: an H200 showed 64 MiB as free 0.36 ms after they were unmapped.
static const double LATER = 50e3;  // us

static size_t free_now(void) {
    size_t free = 0, all = 0;
    must("cuMemGetInfo", LOOK(cuMemGetInfo_v2, &free, &all));
    return free;
}

// Whether most of those bytes are taken that were free, and stay so.
static int taken(size_t before) {
    double end = microseconds() + LATER;
    do
        if (free_now() + BYTES / 2 >= before) return 0;
    while (microseconds() < end);
    return 1;
}

void kept_facts(void) {
    struct properties properties = {.type = 1, .handles = POSIX_FILE, .location_type = 1};
    unsigned long long memory = 0, again = 0;
    int file = -1;
    begin();
    size_t before = free_now();
    must("cuMemCreate", CU(cuMemCreate, &memory, BYTES, &properties, 0ULL));
    say_bool("memory_is_taken", taken(before));
    say_result("export", CU(cuMemExportToShareableHandle, &file, memory, POSIX_FILE, 0ULL));
    say_result("import_own", CU(cuMemImportFromShareableHandle, &again, (void *)(intptr_t)file, POSIX_FILE));
    say_bool("import_own_is_the_same", again == memory);
    say_result("release_the_first", CU(cuMemRelease, memory));
    say_bool("an_import_keeps_the_memory", taken(before));
    say_result("release_the_import", CU(cuMemRelease, again));
    say_bool("a_file_keeps_the_memory", taken(before));
    say_result("import_what_only_the_file_keeps", CU(cuMemImportFromShareableHandle, &again, (void *)(intptr_t)file, POSIX_FILE));
    say_result("close", close(file));
    say_bool("that_import_keeps_the_memory", taken(before));
    say_result("release_that_import", CU(cuMemRelease, again));
    say_bool("then_it_is_free", !taken(before));
}

// NVIDIA's page says that a reset cleans up all resources of the device in the process. It does not name
// memory of no context: while these answers are unverified, they are softgpu's, which leaves it.
void reset_facts(void) {
    struct properties properties = {.type = 1, .location_type = 1};
    unsigned long long memory = 0;
    begin();
    size_t before = free_now();
    must("cuMemCreate", CU(cuMemCreate, &memory, BYTES, &properties, 0ULL));
    say_result("with_physical_memory", CU(cuDevicePrimaryCtxReset_v2, 0));
    begin();
    say_bool("physical_memory_stays", taken(before));
}

void reset_mapped_facts(void) {
    struct properties properties = {.type = 1, .location_type = 1};
    unsigned long long memory = 0;
    address at = 0;
    begin();
    size_t before = free_now();
    must("cuMemCreate", CU(cuMemCreate, &memory, BYTES, &properties, 0ULL));
    must("cuMemAddressReserve", CU(cuMemAddressReserve, &at, BYTES, (size_t)0, (address)0, 0ULL));
    must("cuMemMap", CU(cuMemMap, at, BYTES, (size_t)0, memory, 0ULL));
    must("cuMemRelease", CU(cuMemRelease, memory));
    say_result("with_mapped_memory", CU(cuDevicePrimaryCtxReset_v2, 0));
    begin();
    say_bool("mapped_memory_stays", taken(before));
}

// The pool is not asked afterwards: where its memory has gone, its handle may be anything.
void reset_pool_facts(void) {
    struct {
        int type, handles, location_type, location_id;
        void *security;
        size_t most;
        unsigned short usage;
        unsigned char reserved[54];
    } properties = {.type = 1, .location_type = 1};
    unsigned long long keep = ~0ull;
    handle pool = NULL;
    address at = 0;
    begin();
    size_t before = free_now();
    must("cuMemPoolCreate", CU(cuMemPoolCreate, &pool, &properties));
    must("cuMemPoolSetAttribute", CU(cuMemPoolSetAttribute, pool, 4, &keep));
    must("cuMemAllocFromPoolAsync", CU(cuMemAllocFromPoolAsync, &at, BYTES, pool, NULL));
    must("cuMemFreeAsync", CU(cuMemFreeAsync, at, NULL));
    must("cuCtxSynchronize", CU(cuCtxSynchronize));
    say_result("with_a_pool", CU(cuDevicePrimaryCtxReset_v2, 0));
    begin();
    say_bool("pool_memory_stays", taken(before));
}

// Memory pools and allocation in stream order.
#include <stdbool.h>

#include "facts.h"

struct pool_properties {
    int type, handles, location_type, location_id;
    void *security;
    size_t max;
    unsigned short usage;
    unsigned char reserved[54];
};

static unsigned long long read_attribute(handle pool, int which) {
    unsigned long long value = ~0ULL;
    CU(cuMemPoolGetAttribute, pool, which, &value);
    return value;
}

enum { THRESHOLD = 4, RESERVED = 5, RESERVED_HIGH = 6, USED = 7, USED_HIGH = 8, MIB = 1 << 20, PART = 8 * MIB };

/* Whether an allocation of `bytes` leaves the pool's reserved memory unchanged, and lies in the `of` bytes from `hole`. Frees it again. */
static bool fits(handle pool, handle stream, size_t bytes, address hole, size_t of) {
    address at = 0;
    unsigned long long before = read_attribute(pool, RESERVED);
    if (CU(cuMemAllocAsync, &at, bytes, stream)) return false;
    bool same = read_attribute(pool, RESERVED) == before;
    CU(cuMemFreeAsync, at, stream);
    return same && at >= hole && at + bytes <= hole + of;
}

/* A pool of one step without room: what a free serves while the work before it in its stream goes on, and a hole once it is over. */
static void hole_facts(handle pool, handle stream, handle other, address hole) {
    volatile uint32_t *word = NULL;
    must("cuMemHostAlloc", CU(cuMemHostAlloc, (void **)&word, (size_t)4096, 2u));
    *word = 0;
    must("cuStreamWaitValue32", CU(cuStreamWaitValue32_v2, stream, (address)(uintptr_t)word, 1u, 0u));
    CU(cuMemFreeAsync, hole, stream);
    say_bool("a_free_under_way_serves_its_stream", fits(pool, stream, PART, hole, PART));
    say_bool("a_free_under_way_serves_another_stream", fits(pool, other, PART, hole, PART));
    *word = 1;
    CU(cuCtxSynchronize);
    /* Without what it grew by. */
    CU(cuMemPoolTrimTo, pool, (size_t)0);
    say_bool("a_hole_serves_its_size", fits(pool, stream, PART, hole, PART));
    CU(cuCtxSynchronize);
    say_bool("a_hole_serves_less", fits(pool, stream, 3 * MIB, hole, PART));
    CU(cuCtxSynchronize);
    say_bool("a_hole_serves_another_stream", fits(pool, other, PART, hole, PART));
    CU(cuCtxSynchronize);
}

/* When a pool that keeps freed memory grows, and when it does not. */
static void pool_room_facts(handle pool, handle stream) {
    address at[4] = {0};
    handle other = NULL;
    unsigned long long value = ~0ULL;
    must("cuStreamCreate", CU(cuStreamCreate, &other, 1));
    CU(cuMemPoolSetAttribute, pool, THRESHOLD, &value);
    CU(cuMemPoolTrimTo, pool, (size_t)0);
    CU(cuMemAllocAsync, &at[0], (size_t)PART, stream);
    say_number("grows_by_mib", (long long)(read_attribute(pool, RESERVED) / MIB));
    for (int i = 1; i < 4; i++) CU(cuMemAllocAsync, &at[i], (size_t)PART, stream);
    say_bool("four_parts_fill_it", read_attribute(pool, RESERVED) == 4 * PART);
    hole_facts(pool, stream, other, at[1]);
    CU(cuMemFreeAsync, at[0], stream);
    CU(cuCtxSynchronize);
    say_bool("two_holes_that_touch_are_one", fits(pool, stream, 2 * PART, at[0] < at[1] ? at[0] : at[1], 2 * PART));
    CU(cuMemFreeAsync, at[2], stream);
    CU(cuMemFreeAsync, at[3], stream);
    CU(cuCtxSynchronize);
    CU(cuMemAllocAsync, &at[0], (size_t)5 * PART, stream);
    value = read_attribute(pool, RESERVED) / MIB;
    say_bool("grows_by_no_more_than_the_next_step", value <= 32 + 64);
    CU(cuMemFreeAsync, at[0], stream);
    CU(cuCtxSynchronize);
    CU(cuMemPoolTrimTo, pool, (size_t)0);
}

void pool_facts(void) {
    handle first = NULL, current = NULL, own = NULL, stream = NULL;
    address a = 0, b = 0;
    unsigned long long value = 0;
    struct pool_properties properties = {.type = 1, .location_type = 1};
    begin();
    must("cuStreamCreate", CU(cuStreamCreate, &stream, 1));
    say_result("default", CU(cuDeviceGetDefaultMemPool, &first, 0));
    say_result("current", CU(cuDeviceGetMemPool, &current, 0));
    say_bool("current_is_the_default", first == current);
    say_result("default_of_no_device", CU(cuDeviceGetDefaultMemPool, &current, 99));
    say_number("threshold_at_first", (long long)read_attribute(first, THRESHOLD));
    say_number("used_at_first", (long long)read_attribute(first, USED));
    a = 1;
    say_result("alloc_0", CU(cuMemAllocAsync, &a, (size_t)0, stream));
    say_bool("alloc_0_is_no_address", a == 0);
    say_result("free_0", CU(cuMemFreeAsync, (address)0, stream));
    say_result("alloc_to_null", CU(cuMemAllocAsync, NULL, (size_t)1024, stream));
    say_result("alloc", CU(cuMemAllocAsync, &a, (size_t)1024, stream));
    say_bool("reserved_covers_used", read_attribute(first, RESERVED) >= read_attribute(first, USED));
    say_bool("something_is_used", read_attribute(first, USED) >= 1024);
    say_result("fill", CU(cuMemsetD8Async, a, 1, (size_t)1024, stream));
    say_result("free", CU(cuMemFreeAsync, a, stream));
    say_result("synchronize", CU(cuStreamSynchronize, stream));
    say_number("used_after_free", (long long)read_attribute(first, USED));
    say_number("reserved_after_synchronize", (long long)read_attribute(first, RESERVED));
    value = ~0ULL;
    say_result("keep_everything", CU(cuMemPoolSetAttribute, first, THRESHOLD, &value));
    CU(cuMemAllocAsync, &a, (size_t)1024, stream);
    CU(cuMemFreeAsync, a, stream);
    CU(cuStreamSynchronize, stream);
    say_bool("kept_after_synchronize", read_attribute(first, RESERVED) > 0);
    say_result("trim", CU(cuMemPoolTrimTo, first, (size_t)0));
    say_number("reserved_after_trim", (long long)read_attribute(first, RESERVED));
    value = 0;
    say_result("reset_high", CU(cuMemPoolSetAttribute, first, RESERVED_HIGH, &value));
    value = 5;
    say_result("set_high", CU(cuMemPoolSetAttribute, first, RESERVED_HIGH, &value));
    say_result("set_used", CU(cuMemPoolSetAttribute, first, USED, &value));
    say_result("attribute_unknown", CU(cuMemPoolGetAttribute, first, 1000, &value));
    say_result("destroy_default", CU(cuMemPoolDestroy, first));
    say_result("create", CU(cuMemPoolCreate, &own, &properties));
    say_result("from_pool", CU(cuMemAllocFromPoolAsync, &b, (size_t)4096, own, stream));
    say_result("free_of_pool_memory", CU(cuMemFree_v2, b));
    say_result("alloc_more_than_there_is", CU(cuMemAllocAsync, &a, (size_t)1 << 46, stream));
    say_result("set_device_pool", CU(cuDeviceSetMemPool, 0, own));
    CU(cuDeviceGetMemPool, &current, 0);
    say_bool("set_device_pool_is_current", current == own);
    say_result("destroy", CU(cuMemPoolDestroy, own));
    CU(cuDeviceGetMemPool, &current, 0);
    say_bool("destroyed_pool_gives_way_to_the_default", current == first);
    properties.location_id = 99;
    say_result("create_on_no_device", CU(cuMemPoolCreate, &own, &properties));
    say_result("create_from_null", CU(cuMemPoolCreate, &own, NULL));
    pool_room_facts(first, stream);
}

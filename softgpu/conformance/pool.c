// Memory pools and allocation in stream order.
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

void pool_facts(void) {
    enum { THRESHOLD = 4, RESERVED = 5, RESERVED_HIGH = 6, USED = 7, USED_HIGH = 8 };
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
    say_result("alloc_0", CU(cuMemAllocAsync, &a, (size_t)0, stream));
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
}

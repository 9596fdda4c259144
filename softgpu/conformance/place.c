// Memory pools of the host and of managed memory, and the pools of a location. Drivers have them from 13.0 on.
#include "facts.h"

enum { PINNED = 1, MANAGED = 2 };
enum { NOWHERE, DEVICE, HOST, HOST_NUMA, HOST_NUMA_CURRENT };
enum { MIB = 1 << 20 };

struct place {
    int type, id;
};
struct access {
    struct place place;
    int flags;
};
struct pool_properties {
    int type, handles;
    struct place place;
    void *security;
    size_t max;
    unsigned short usage;
    unsigned char reserved[54];
};

/* The answer for a pool with these properties, which is destroyed at once. */
static void made(const char *fact, struct pool_properties properties) {
    handle pool = NULL;
    result answer = CU(cuMemPoolCreate, &pool, &properties);
    say_result(fact, answer);
    if (!answer) CU(cuMemPoolDestroy, pool);
}

static void creation(void) {
    made("host", (struct pool_properties){PINNED, 0, {HOST, 0}, NULL, 0, 0, {0}});
    made("host_with_any_number", (struct pool_properties){PINNED, 0, {HOST, 77}, NULL, 0, 0, {0}});
    made("host_for_export", (struct pool_properties){PINNED, 1, {HOST, 0}, NULL, 0, 0, {0}});
    made("host_node", (struct pool_properties){PINNED, 0, {HOST_NUMA, 0}, NULL, 0, 0, {0}});
    made("host_of_no_node", (struct pool_properties){PINNED, 0, {HOST_NUMA, 999}, NULL, 0, 0, {0}});
    made("host_current_node", (struct pool_properties){PINNED, 0, {HOST_NUMA_CURRENT, 0}, NULL, 0, 0, {0}});
    made("host_of_a_size", (struct pool_properties){PINNED, 0, {HOST, 0}, NULL, 64 * MIB, 0, {0}});
    made("pinned_nowhere", (struct pool_properties){PINNED, 0, {NOWHERE, 0}, NULL, 0, 0, {0}});
    made("managed_nowhere", (struct pool_properties){MANAGED, 0, {NOWHERE, 0}, NULL, 0, 0, {0}});
    made("managed_on_a_device", (struct pool_properties){MANAGED, 0, {DEVICE, 0}, NULL, 0, 0, {0}});
    made("managed_on_no_device", (struct pool_properties){MANAGED, 0, {DEVICE, 99}, NULL, 0, 0, {0}});
    made("managed_on_the_host", (struct pool_properties){MANAGED, 0, {HOST, 0}, NULL, 0, 0, {0}});
    made("managed_on_a_node", (struct pool_properties){MANAGED, 0, {HOST_NUMA, 0}, NULL, 0, 0, {0}});
    made("managed_for_export", (struct pool_properties){MANAGED, 1, {DEVICE, 0}, NULL, 0, 0, {0}});
    made("managed_of_a_size", (struct pool_properties){MANAGED, 0, {DEVICE, 0}, NULL, 64 * MIB, 0, {0}});
    made("of_no_type", (struct pool_properties){7, 0, {HOST, 0}, NULL, 0, 0, {0}});
}

static handle default_of(const char *fact, int type, int id, int kind) {
    handle pool = NULL;
    struct place place = {type, id};
    say_result(fact, CU(cuMemGetDefaultMemPool, &pool, &place, kind));
    return pool;
}

static void defaults(void) {
    handle of_device = NULL, current = NULL, own = NULL;
    struct place host = {HOST, 0}, nowhere = {NOWHERE, 0};
    CU(cuDeviceGetDefaultMemPool, &of_device, 0);
    say_bool("default_of_the_device_is_one", default_of("default_of_a_device", DEVICE, 0, PINNED) == of_device);
    handle of_host = default_of("default_of_the_host", HOST, 0, PINNED);
    say_bool("default_of_the_host_is_one", default_of("default_of_the_host_again", HOST, 5, PINNED) == of_host);
    handle of_node = default_of("default_of_a_node", HOST_NUMA, 0, PINNED);
    handle managed = default_of("default_of_managed", NOWHERE, 0, MANAGED);
    say_bool("default_of_managed_on_a_device_is_another", default_of("default_of_managed_on_a_device", DEVICE, 0, MANAGED) != managed);
    default_of("default_of_pinned_nowhere", NOWHERE, 0, PINNED);
    default_of("default_of_no_device", DEVICE, 99, PINNED);
    say_result("destroy_default_of_the_host", CU(cuMemPoolDestroy, of_host));
    say_result("current_of_the_host", CU(cuMemGetMemPool, &current, &host, PINNED));
    say_bool("current_of_the_host_is_the_default", current == of_host);
    struct pool_properties properties = {PINNED, 0, {HOST, 0}, NULL, 0, 0, {0}};
    must("cuMemPoolCreate", CU(cuMemPoolCreate, &own, &properties));
    say_result("set_current_of_the_host", CU(cuMemSetMemPool, &host, PINNED, own));
    CU(cuMemGetMemPool, &current, &host, PINNED);
    say_bool("set_current_is_current", current == own);
    say_result("set_a_host_pool_as_managed", CU(cuMemSetMemPool, &nowhere, MANAGED, own));
    say_result("set_a_host_pool_of_the_device", CU(cuDeviceSetMemPool, 0, own));
    CU(cuMemPoolDestroy, own);
    current = NULL;
    say_result("current_when_it_is_destroyed", CU(cuMemGetMemPool, &current, &host, PINNED));
    say("current_when_it_is_destroyed_is", !current ? "none" : current == own ? "the destroyed" : current == of_host ? "the default" : "another");
    say("current_when_it_is_destroyed_is_that_of", current == of_device ? "the device" : current == of_node ? "the node" : current == managed ? "managed" : "none");
}

static unsigned attribute(int which, address at) {
    unsigned value = 77;
    CU(cuPointerGetAttribute, &value, which, at);
    return value;
}

static int rights(handle pool, int type) {
    int flags = 77;
    struct place place = {type, 0};
    CU(cuMemPoolGetAccess, &flags, pool, &place);
    return flags;
}

enum { MEMORY_TYPE = 2, IS_MANAGED = 8, MEMPOOL = 17 };

static void on_the_host(handle stream) {
    handle pool = NULL, told = NULL;
    address at = 0;
    struct pool_properties properties = {PINNED, 0, {HOST, 0}, NULL, 0, 0, {0}};
    struct access access = {{DEVICE, 0}, 3};
    must("cuMemPoolCreate", CU(cuMemPoolCreate, &pool, &properties));
    say_number("host_access_of_a_device_at_first", rights(pool, DEVICE));
    say_number("host_access_of_the_host", rights(pool, HOST));
    say_result("host_give_access", CU(cuMemPoolSetAccess, pool, &access, (size_t)1));
    say_number("host_access_of_a_device", rights(pool, DEVICE));
    must("cuMemAllocFromPoolAsync", CU(cuMemAllocFromPoolAsync, &at, (size_t)MIB, pool, stream));
    say_number("host_memory_type", attribute(MEMORY_TYPE, at));
    CU(cuPointerGetAttribute, &told, MEMPOOL, at);
    say_bool("host_memory_names_its_pool", told == pool);
    say_result("host_fill", CU(cuMemsetD8Async, at, 9, (size_t)MIB, stream));
    say_result("host_synchronize", CU(cuStreamSynchronize, stream));
    unsigned char *bytes = (unsigned char *)(uintptr_t)at;
    say_number("host_reads_what_was_filled", bytes[MIB - 1]);
    say_result("host_free", CU(cuMemFreeAsync, at, stream));
    CU(cuStreamSynchronize, stream);
    say_result("host_destroy", CU(cuMemPoolDestroy, pool));
}

static void managed(handle stream) {
    enum { PREFERRED = 2 };
    handle pool = NULL, told = NULL;
    address at = 0;
    int where = 77;
    struct pool_properties properties = {MANAGED, 0, {DEVICE, 0}, NULL, 0, 0, {0}};
    struct access access = {{DEVICE, 0}, 3};
    must("cuMemPoolCreate", CU(cuMemPoolCreate, &pool, &properties));
    must("cuMemAllocFromPoolAsync", CU(cuMemAllocFromPoolAsync, &at, (size_t)4 * MIB, pool, stream));
    must("cuStreamSynchronize", CU(cuStreamSynchronize, stream));
    say_number("managed_memory_type", attribute(MEMORY_TYPE, at));
    say_number("managed_is_managed", attribute(IS_MANAGED, at) & 0xff);
    CU(cuPointerGetAttribute, &told, MEMPOOL, at);
    say_bool("managed_memory_names_its_pool", told == pool);
    CU(cuMemRangeGetAttribute, &where, (size_t)4, PREFERRED, at, (size_t)4 * MIB);
    say_number("managed_prefers_its_pools_place", where);
    unsigned char *bytes = (unsigned char *)(uintptr_t)at;
    memset(bytes, 3, 4 * MIB);
    say_number("managed_host_reads_what_it_wrote", bytes[4 * MIB - 1]);
    say_result("managed_fill", CU(cuMemsetD8Async, at, 9, (size_t)4 * MIB, stream));
    CU(cuStreamSynchronize, stream);
    say_number("managed_host_reads_what_the_device_wrote", bytes[0]);
    say_result("managed_prefetch_home", CU(cuMemPrefetchAsync, at, (size_t)4 * MIB, -1, stream));
    CU(cuStreamSynchronize, stream);
    say_number("managed_keeps_its_bytes", bytes[MIB]);
    say_number("managed_access_of_a_device", rights(pool, DEVICE));
    say_number("managed_access_of_the_host", rights(pool, HOST));
    say_result("managed_give_access", CU(cuMemPoolSetAccess, pool, &access, (size_t)1));
    say_number("managed_access_when_given", rights(pool, DEVICE));
    say_result("managed_free", CU(cuMemFreeAsync, at, stream));
    CU(cuStreamSynchronize, stream);
    say_result("managed_destroy", CU(cuMemPoolDestroy, pool));
}

void place_facts(void) {
    handle stream = NULL;
    begin();
    must("cuStreamCreate", CU(cuStreamCreate, &stream, 1));
    creation();
    defaults();
    on_the_host(stream);
    managed(stream);
}

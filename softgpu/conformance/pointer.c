// Pointer attributes.
#include "facts.h"

static void sync_memops(const char *fact, address at) {
    enum { SYNC_MEMOPS = 6 };
    int on = 1, is = 9;
    char text[64];
    say_result(fact, CU(cuPointerSetAttribute, &on, SYNC_MEMOPS, at));
    snprintf(text, sizeof text, "%s_is", fact);
    CU(cuPointerGetAttribute, &is, SYNC_MEMOPS, at);
    say_number(text, is & 0xff);
}

static void ask(const char *fact, int attribute, address at) {
    unsigned long long value[2] = {0, 0};
    say_result(fact, CU(cuPointerGetAttribute, value, attribute, at));
}

void pointer_facts(void) {
    enum { CONTEXT = 1, TYPE, DEVICE, HOST, BUFFER_ID = 7, MANAGED, ORDINAL, LEGACY_IPC, START, SIZE, MAPPED, POOL = 17 };
    address a = 0, b = 0, start = 0;
    unsigned long long first = 0, second = 0, size = 0, pool = 1;
    unsigned type = 9, capable = 9;
    int ordinal = 9, local = 0;
    void *pinned = NULL;
    handle context = begin(), owner = NULL, stream = NULL;
    must("cuMemAlloc", CU(cuMemAlloc_v2, &a, (size_t)5000));
    say_result("of_host_memory", CU(cuPointerGetAttribute, &type, TYPE, (address)(uintptr_t)&local));
    ask("no_attribute", 99, a);
    say_result("to_null", CU(cuPointerGetAttribute, NULL, TYPE, a));
    CU(cuPointerGetAttribute, &owner, CONTEXT, a + 10);
    say_bool("context_is_the_current", owner == context);
    CU(cuPointerGetAttribute, &type, TYPE, a + 4999);
    say_number("type", type);
    CU(cuPointerGetAttribute, &ordinal, ORDINAL, a);
    say_number("ordinal", ordinal);
    CU(cuPointerGetAttribute, &start, START, a + 100);
    say_bool("start", start == a);
    CU(cuPointerGetAttribute, &size, SIZE, a + 100);
    say_number("size", (long long)size);
    ask("host_pointer_of_device_memory", HOST, a);
    CU(cuPointerGetAttribute, &capable, LEGACY_IPC, a);
    say_number("legacy_ipc", capable & 0xff);
    CU(cuPointerGetAttribute, &first, BUFFER_ID, a);
    CU(cuMemFree_v2, a);
    ask("of_freed_memory", TYPE, a);
    must("cuMemAlloc", CU(cuMemAlloc_v2, &b, (size_t)5000));
    CU(cuPointerGetAttribute, &second, BUFFER_ID, b);
    say_bool("buffer_ids_differ", first != second);
    must("cuMemHostAlloc", CU(cuMemHostAlloc, &pinned, (size_t)4096, 0u));
    CU(cuPointerGetAttribute, &type, TYPE, (address)(uintptr_t)pinned);
    say_number("type_of_pinned", type);
    CU(cuPointerGetAttribute, &start, DEVICE, (address)(uintptr_t)pinned + 7);
    say_bool("pinned_has_one_address", start == (address)(uintptr_t)pinned + 7);
    must("cuStreamCreate", CU(cuStreamCreate, &stream, 1));
    must("cuMemAllocAsync", CU(cuMemAllocAsync, &a, (size_t)5000, stream));
    CU(cuStreamSynchronize, stream);
    CU(cuPointerGetAttribute, &pool, POOL, b);
    say_bool("pool_of_plain_memory_is_null", pool == 0);
    CU(cuPointerGetAttribute, &pool, POOL, a);
    say_bool("pool_of_pool_memory_is_not", pool != 0);
    CU(cuPointerGetAttribute, &capable, LEGACY_IPC, a);
    say_number("legacy_ipc_of_pool_memory", capable & 0xff);
    sync_memops("sync_memops", b);
    sync_memops("sync_memops_of_pool_memory", a);
    sync_memops("sync_memops_of_pinned", (address)(uintptr_t)pinned);
    int asked[] = {TYPE, ORDINAL};
    void *to[] = {&type, &ordinal};
    say_result("several_of_host_memory", CU(cuPointerGetAttributes, 2u, asked, to, (address)(uintptr_t)&local));
    say_number("several_type", type);
    say_number("several_ordinal", ordinal);
    say_result("none_of_them", CU(cuPointerGetAttributes, 0u, asked, to, a));
}

// Managed memory; and, in a family of its own, more of it than the device has.
#include "facts.h"

void managed_facts(void) {
    enum { READ_MOSTLY = 1, PREFERRED = 2, ACCESSED_BY = 3, LAST_PREFETCH = 4 };
    address a = 0;
    size_t size = (size_t)4 << 20, where_size = 4;
    int where = 77, devices[2] = {77, 77};
    unsigned type = 0, managed = 0;
    begin();
    say_result("alloc_0", CU(cuMemAllocManaged, &a, (size_t)0, 1u));
    say_result("alloc_no_flag", CU(cuMemAllocManaged, &a, size, 0u));
    say_result("alloc_single", CU(cuMemAllocManaged, &a, size, 4u));
    say_result("alloc_host", CU(cuMemAllocManaged, &a, size, 2u));
    say_result("free_host", CU(cuMemFree_v2, a));
    must("cuMemAllocManaged", CU(cuMemAllocManaged, &a, size, 1u));
    unsigned char *bytes = (unsigned char *)(uintptr_t)a;
    memset(bytes, 3, size);
    say_bool("host_reads_what_it_wrote", bytes[size - 1] == 3);
    CU(cuPointerGetAttribute, &type, 2, a);
    CU(cuPointerGetAttribute, &managed, 8, a);
    say_number("memory_type", type);
    say_number("is_managed", managed & 0xff);
    CU(cuMemRangeGetAttribute, &where, where_size, LAST_PREFETCH, a, size);
    say_number("never_prefetched", where);
    say_result("prefetch", CU(cuMemPrefetchAsync, a, size, 0, NULL));
    say_result("synchronize", CU(cuCtxSynchronize));
    CU(cuMemRangeGetAttribute, &where, where_size, LAST_PREFETCH, a, size);
    say_number("prefetched_to", where);
    CU(cuMemsetD8_v2, a, 9, size);
    CU(cuCtxSynchronize);
    say_number("host_reads_what_the_device_wrote", bytes[size / 2]);
    say_result("prefetch_home", CU(cuMemPrefetchAsync, a, size, -1, NULL));
    CU(cuCtxSynchronize);
    CU(cuMemRangeGetAttribute, &where, where_size, LAST_PREFETCH, a, size);
    say_number("prefetched_home", where);
    say_result("prefetch_to_no_device", CU(cuMemPrefetchAsync, a, size, 99, NULL));
    say_result("prefetch_host_memory", CU(cuMemPrefetchAsync, (address)(uintptr_t)&where, (size_t)4, 0, NULL));
    say_result("advise_preferred", CU(cuMemAdvise, a, size, 3, 0));
    CU(cuMemRangeGetAttribute, &where, where_size, PREFERRED, a, size);
    say_number("preferred", where);
    say_result("advise_nonsense", CU(cuMemAdvise, a, size, 99, 0));
    say_result("advise_no_device", CU(cuMemAdvise, a, size, 3, 99));
    say_result("advise_accessed_by", CU(cuMemAdvise, a, size, 5, 0));
    CU(cuMemRangeGetAttribute, devices, sizeof devices, ACCESSED_BY, a, size);
    say_number("accessed_by", devices[0]);
    say_number("accessed_by_no_other", devices[1]);
    say_result("attribute_of_wrong_size", CU(cuMemRangeGetAttribute, &where, (size_t)3, PREFERRED, a, size));
    enum { PREFERRED_TYPE = 5, PREFERRED_ID = 6, PREFETCH_TYPE = 7 };
    CU(cuMemRangeGetAttribute, &where, where_size, PREFERRED_TYPE, a, size);
    say_number("preferred_type", where);
    CU(cuMemRangeGetAttribute, &where, where_size, PREFERRED_ID, a, size);
    say_number("preferred_id", where);
    CU(cuMemRangeGetAttribute, &where, where_size, PREFETCH_TYPE, a, size);
    say_number("prefetched_to_type", where);
    CU(cuMemAdvise, a, size / 2, 3, -1);
    CU(cuMemRangeGetAttribute, &where, where_size, PREFERRED, a, size);
    say_number("preferred_of_halves_that_differ", where);
    CU(cuMemRangeGetAttribute, &where, where_size, PREFERRED_TYPE, a, size);
    say_number("preferred_type_of_halves_that_differ", where);
    say_result("advise_mostly_read", CU(cuMemAdvise, a, size, 1, 0));
    CU(cuMemRangeGetAttribute, &where, where_size, READ_MOSTLY, a, size);
    say_number("mostly_read", where);
    CU(cuMemAdvise, a, size / 2, 2, 0);
    CU(cuMemRangeGetAttribute, &where, where_size, READ_MOSTLY, a, size);
    say_number("mostly_read_in_part", where);
    say_result("free", CU(cuMemFree_v2, a));

    // A copy engine and a kernel's memset read and write managed memory that is on the host.
    must("cuMemAllocManaged", CU(cuMemAllocManaged, &a, size, 1u));
    bytes = (unsigned char *)(uintptr_t)a;
    memset(bytes, 8, size);
    CU(cuMemPrefetchAsync, a, size, -1, NULL);
    unsigned char seen = 0;
    say_result("copy_out_of_the_host", CU(cuMemcpyDtoH_v2, &seen, a + size - 1, (size_t)1));
    say_number("copied_out_of_the_host", seen);
    say_result("free_on_the_host", CU(cuMemFree_v2, a));

    // Batches over managed memory, and over memory that is not.
    static const char *const batches[] = {"discard_batch", "discard_batch_of_linear", "prefetch_batch_of_linear",
                                          "linear_keeps_its_bytes", NULL};
    if (lacks("cuMemDiscardBatchAsync", batches)) return;
    struct { int type, id; } place = {1, 0};
    address both[2] = {0, 0};
    size_t sizes[2] = {size, size}, first = 0;
    void *stream = NULL;
    must("cuStreamCreate", CU(cuStreamCreate, &stream, 1u));
    must("cuMemAllocManaged", CU(cuMemAllocManaged, &both[0], size, 1u));
    must("cuMemAlloc", CU(cuMemAlloc_v2, &both[1], size));
    must("cuMemsetD8", CU(cuMemsetD8_v2, both[0], 5, size));
    must("cuMemsetD8", CU(cuMemsetD8_v2, both[1], 5, size));
    must("cuCtxSynchronize", CU(cuCtxSynchronize));
    say_result("discard_batch", CU(cuMemDiscardBatchAsync, both, sizes, (size_t)1, 0ull, stream));
    say_result("discard_batch_of_linear", CU(cuMemDiscardBatchAsync, both, sizes, (size_t)2, 0ull, stream));
    say_result("prefetch_batch_of_linear", CU(cuMemPrefetchBatchAsync, both, sizes, (size_t)2, &place, &first, (size_t)1, 0ull, stream));
    CU(cuStreamSynchronize, stream);
    CU(cuMemcpyDtoH_v2, &seen, both[1] + size - 1, (size_t)1);
    say_bool("linear_keeps_its_bytes", seen == 5);
}

// Addresses are given, and what is touched last is there. A real GPU may hang when a program asks for more managed memory than is
// free, and with it every other program that uses it: so this family runs only where it is asked for.
void beyond_facts(void) {
    address a = 0;
    size_t size = (size_t)4 << 20, total = 0, available = 0, before = 0;
    int legacy = 7, where = 77;
    begin();
    CU(cuMemGetInfo_v2, &available, &total);
    unsigned got = CU(cuMemAllocManaged, &a, total + size, 1u);
    say_result("alloc", got);
    // Where something refuses it, the rest has no answer.
    if (got) return;
    CU(cuMemGetInfo_v2, &before, &total);
    say_bool("untouched_memory_takes_none", before >= available);
    CU(cuPointerGetAttribute, &legacy, 10, a);
    say_number("legacy_ipc", legacy & 0xff);
    CU(cuPointerGetAttribute, &where, 9, a);
    say_number("device_ordinal", where);
    CU(cuMemsetD8_v2, a + total, 5, size);
    say_result("fill_the_end", CU(cuCtxSynchronize));
    say_number("end_is_filled", ((unsigned char *)(uintptr_t)a)[total + size - 1]);
    say_result("free", CU(cuMemFree_v2, a));
}

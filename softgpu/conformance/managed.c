// Managed memory.
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
    say_result("free", CU(cuMemFree_v2, a));
}

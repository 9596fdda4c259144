// Pinned and registered host memory.
#include "facts.h"

void host_facts(void) {
    void *pinned = NULL, *other = NULL;
    address seen = 0;
    unsigned flags = 0, kind = 0;
    begin();
    say_result("alloc", CU(cuMemHostAlloc, &pinned, (size_t)4096, 0u));
    say_result("alloc_to_null", CU(cuMemHostAlloc, NULL, (size_t)4096, 0u));
    say_result("alloc_0", CU(cuMemHostAlloc, &other, (size_t)0, 0u));
    say_bool("alloc_0_is_no_address", other == NULL);
    say_result("plain_alloc_0", CU(cuMemAllocHost_v2, &other, (size_t)0));
    say_result("alloc_nonsense", CU(cuMemHostAlloc, &other, (size_t)4096, 0x100u));
    memset(pinned, 1, 4096);
    say_result("seen_by_device", CU(cuMemHostGetDevicePointer_v2, &seen, pinned, 0u));
    say_bool("seen_at_the_same_address", seen == (address)(uintptr_t)pinned);
    say_result("flags", CU(cuMemHostGetFlags, &flags, pinned));
    say_result("memory_type", CU(cuPointerGetAttribute, &kind, 2, (address)(uintptr_t)pinned));
    say_number("memory_type_is", kind);
    say_result("free_as_device_memory", CU(cuMemFree_v2, (address)(uintptr_t)pinned));
    say_result("free", CU(cuMemFreeHost, pinned));
    say_result("free_null", CU(cuMemFreeHost, NULL));
    other = aligned_alloc(4096, 8192);
    say_result("register", CU(cuMemHostRegister_v2, other, (size_t)8192, 0u));
    say_result("register_again", CU(cuMemHostRegister_v2, other, (size_t)8192, 0u));
    say_result("register_null", CU(cuMemHostRegister_v2, NULL, (size_t)4096, 0u));
    say_result("register_0", CU(cuMemHostRegister_v2, other, (size_t)0, 0u));
    say_result("free_registered", CU(cuMemFreeHost, other));
    say_result("unregister_inside", CU(cuMemHostUnregister, (char *)other + 64));
    say_result("unregister", CU(cuMemHostUnregister, other));
    say_result("unregister_again", CU(cuMemHostUnregister, other));
}

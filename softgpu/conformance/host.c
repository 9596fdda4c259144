// Pinned and registered host memory.
#include "facts.h"

#include <sys/mman.h>

// Registering takes the pages of a range: what if one is not there, or may not be written?
static void registering(void) {
    enum { PAGE = 4096, READ_ONLY = 8 };
    unsigned char *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    at[0] = 1;
    munmap(at + PAGE, PAGE);
    result answer = CU(cuMemHostRegister_v2, at, (size_t)2 * PAGE, 0u);
    say_result("register_unmapped", answer);
    if (!answer) CU(cuMemHostUnregister, at);
    mprotect(at, PAGE, PROT_READ);
    answer = CU(cuMemHostRegister_v2, at, (size_t)PAGE, 0u);
    say_result("register_read_only", answer);
    if (!answer) CU(cuMemHostUnregister, at);
    say_result("register_read_only_with_flag", CU(cuMemHostRegister_v2, at, (size_t)PAGE, (unsigned)READ_ONLY));
}

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
    say_result("flags_of_registered", CU(cuMemHostGetFlags, &flags, other));
    say_result("free_registered", CU(cuMemFreeHost, other));
    say_result("unregister_inside", CU(cuMemHostUnregister, (char *)other + 64));
    say_result("unregister", CU(cuMemHostUnregister, other));
    say_result("unregister_again", CU(cuMemHostUnregister, other));
    registering();
}

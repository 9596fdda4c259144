// Physical memory, addresses, and mappings.
#include "facts.h"

#include <setjmp.h>
#include <signal.h>

struct properties {
    int type, handles, location_type, location_id;
    void *metadata;
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
};
struct access {
    int location_type, location_id, flags;
};

static void probe(const char *fact, address at, size_t bytes, size_t offset, unsigned long long memory) {
    result answer = CU(cuMemMap, at, bytes, offset, memory, 0ULL);
    say_result(fact, answer);
    if (!answer) CU(cuMemUnmap, at, bytes);
}

void vmm_facts(void) {
    struct properties properties = {.type = 1, .location_type = 1}, told;
    struct properties elsewhere = properties;
    struct access access = {.location_type = 1, .flags = 3}, nowhere = access;
    size_t grain = 0;
    address a = 0, b = 0;
    unsigned long long memory = 0, small = 0, again = 0, rights = 0;
    int byte = 0;
    begin();
    say_result("granularity", CU(cuMemGetAllocationGranularity, &grain, &properties, 0));
    say_number("granularity_is", (long long)grain);
    say_result("reserve", CU(cuMemAddressReserve, &a, 4 * grain, (size_t)0, (address)0, 0ULL));
    say_bool("reserved_is_aligned", a % grain == 0);
    say_result("reserve_0", CU(cuMemAddressReserve, &b, (size_t)0, (size_t)0, (address)0, 0ULL));
    say_result("reserve_odd_size", CU(cuMemAddressReserve, &b, grain + 1, (size_t)0, (address)0, 0ULL));
    say_result("reserve_odd_alignment", CU(cuMemAddressReserve, &b, grain, (size_t)3, (address)0, 0ULL));
    say_result("reserve_flags", CU(cuMemAddressReserve, &b, grain, (size_t)0, (address)0, 1ULL));
    say_result("create", CU(cuMemCreate, &memory, 2 * grain, &properties, 0ULL));
    say_result("create_0", CU(cuMemCreate, &again, (size_t)0, &properties, 0ULL));
    say_result("create_odd_size", CU(cuMemCreate, &again, grain + 1, &properties, 0ULL));
    say_result("create_flags", CU(cuMemCreate, &again, grain, &properties, 1ULL));
    elsewhere.location_id = nowhere.location_id = 99;
    say_result("create_on_no_device", CU(cuMemCreate, &again, grain, &elsewhere, 0ULL));
    say_result("create_more_than_there_is", CU(cuMemCreate, &again, grain << 25, &properties, 0ULL));
    say_result("properties", CU(cuMemGetAllocationPropertiesFromHandle, &told, memory));
    say_bool("properties_are_as_asked", told.type == 1 && told.location_type == 1 && told.location_id == 0);
    say_result("map", CU(cuMemMap, a, 2 * grain, (size_t)0, memory, 0ULL));
    say_result("map_over_it", CU(cuMemMap, a, 2 * grain, (size_t)0, memory, 0ULL));
    must("cuMemCreate", CU(cuMemCreate, &small, grain, &properties, 0ULL));
    // A mapping that is not wanted must not stay.
    probe("map_part", a + 2 * grain, grain, 0, memory);
    probe("map_second_part", a + 2 * grain, grain, grain, memory);
    probe("map_more_than_there_is", a + 2 * grain, 2 * grain, 0, small);
    probe("map_twice", a + 2 * grain, 2 * grain, 0, memory);
    probe("map_unreserved", (address)grain, grain, 0, small);
    probe("map_odd_size", a + 2 * grain, grain + 1, 0, memory);
    CU(cuMemRelease, small);
    say_result("access_before", CU(cuMemGetAccess, &rights, &access, a));
    say_number("access_before_is", (long long)rights);
    say_result("set_access", CU(cuMemSetAccess, a, 2 * grain, &access, (size_t)1));
    say_result("set_access_unmapped", CU(cuMemSetAccess, a, 4 * grain, &access, (size_t)1));
    say_result("set_access_of_no_device", CU(cuMemSetAccess, a, 2 * grain, &nowhere, (size_t)1));
    say_result("access_after", CU(cuMemGetAccess, &rights, &access, a));
    say_number("access_after_is", (long long)rights);
    say_result("fill", CU(cuMemsetD8_v2, a, 7, 2 * grain));
    CU(cuMemcpyDtoH_v2, &byte, a + 2 * grain - 1, (size_t)1);
    say_number("filled_to_the_end", byte);
    say_result("retain", CU(cuMemRetainAllocationHandle, &again, (void *)(uintptr_t)a));
    say_bool("retained_is_the_same", again == memory);
    say_result("release_retained", CU(cuMemRelease, again));
    say_result("release_while_mapped", CU(cuMemRelease, memory));
    CU(cuMemcpyDtoH_v2, &byte, a, (size_t)1);
    say_number("mapping_keeps_the_bytes", byte);
    say_result("free_as_linear", CU(cuMemFree_v2, a));
    say_result("address_free_while_mapped", CU(cuMemAddressFree, a, 4 * grain));
    say_result("unmap_half", CU(cuMemUnmap, a, grain));
    say_result("unmap", CU(cuMemUnmap, a, 2 * grain));
    say_result("unmap_again", CU(cuMemUnmap, a, 2 * grain));
    say_result("address_free_half", CU(cuMemAddressFree, a, 2 * grain));
    say_result("address_free", CU(cuMemAddressFree, a, 4 * grain));
    must("cuMemCreate", CU(cuMemCreate, &memory, grain, &properties, 0ULL));
    must("cuMemRelease", CU(cuMemRelease, memory));
    must("cuMemCreate", CU(cuMemCreate, &again, grain, &properties, 0ULL));
    say_bool("handle_again_is_the_same", again == memory);
}

void denied_facts(void) {
    struct properties properties = {.type = 1, .location_type = 1};
    address a = 0;
    unsigned long long memory = 0;
    size_t grain = 2 << 20;
    begin();
    must("cuMemAddressReserve", CU(cuMemAddressReserve, &a, grain, (size_t)0, (address)0, 0ULL));
    must("cuMemCreate", CU(cuMemCreate, &memory, grain, &properties, 0ULL));
    must("cuMemMap", CU(cuMemMap, a, grain, (size_t)0, memory, 0ULL));
    // A driver may refuse the call or fault when the work runs; the access must not succeed.
    result called = CU(cuMemsetD8_v2, a, 1, (size_t)16), waited = CU(cuCtxSynchronize);
    say_bool("fill_of_mapped_memory_without_access_succeeds", !called && !waited);
    say_result("fill_without_access", called);
    say_result("wait_after_it", waited);
    unsigned byte = 0;
    say_result("copy_from_it", CU(cuMemcpyDtoH_v2, &byte, a, (size_t)1));
}

// Copies of memory that the current context's device may not access, and of memory that any may.
void reach_facts(void) {
    static const char *const facts[] = {"fill", "to_host", "from_host", "on_devices", "between_contexts", "on_the_owner_from_elsewhere",
                                        "plain_fill", "plain_to_host", "boxes_between_contexts", "stream_of_another_context", "fill_in_the_owners_stream", NULL};
    struct properties properties = {.type = 1, .location_type = 1};
    struct access access = {.location_type = 1, .flags = 3};
    handle one = begin(), two = NULL, stream = NULL;
    address there = 0, here = 0, plain = 0;
    unsigned long long memory = 0;
    unsigned word = 0;
    int devices = 0;
    size_t grain = 2 << 20;
    must("cuDeviceGetCount", CU(cuDeviceGetCount, &devices));
    if (devices < 2) {
        for (const char *const *fact = facts; *fact; fact++) say(*fact, "absent");
        return;
    }
    must("cuMemAlloc", CU(cuMemAlloc_v2, &plain, grain));
    must("cuMemCreate", CU(cuMemCreate, &memory, grain, &properties, 0ULL));
    must("cuMemAddressReserve", CU(cuMemAddressReserve, &there, grain, (size_t)0, (address)0, 0ULL));
    must("cuMemMap", CU(cuMemMap, there, grain, (size_t)0, memory, 0ULL));
    must("cuMemSetAccess", CU(cuMemSetAccess, there, grain, &access, (size_t)1));
    must("cuDevicePrimaryCtxRetain", CU(cuDevicePrimaryCtxRetain, &two, 1));
    must("cuCtxSetCurrent", CU(cuCtxSetCurrent, two));
    must("cuMemAlloc", CU(cuMemAlloc_v2, &here, grain));
    must("cuStreamCreate", CU(cuStreamCreate, &stream, 1u));
    say_result("fill", CU(cuMemsetD8_v2, there, 1, (size_t)16));
    say_result("to_host", CU(cuMemcpyDtoH_v2, &word, there, (size_t)4));
    say_result("from_host", CU(cuMemcpyHtoD_v2, there, &word, (size_t)4));
    say_result("on_devices", CU(cuMemcpyDtoDAsync_v2, here, there, (size_t)4, stream));
    say_result("between_contexts", CU(cuMemcpyPeerAsync, here, two, there, one, (size_t)4, stream));
    say_result("on_the_owner_from_elsewhere", CU(cuMemcpyPeerAsync, there, one, there + 4096, one, (size_t)4, stream));
    say_result("plain_fill", CU(cuMemsetD8_v2, plain, 1, (size_t)16));
    say_result("plain_to_host", CU(cuMemcpyDtoH_v2, &word, plain, (size_t)4));
    struct side {
        size_t x, y, z, level;
        int type;
        void *host;
        address device;
        void *array;
        handle context;
        size_t pitch, height;
    };
    struct {
        struct side from, to;
        size_t width, height, depth;
    } box = {{.type = 2, .device = there, .context = one, .pitch = 64, .height = 2},
             {.type = 2, .device = here, .context = two, .pitch = 128, .height = 2}, 64, 2, 1};
    say_result("boxes_between_contexts", CU(cuMemcpy3DPeerAsync, &box, stream));
    must("cuCtxSynchronize", CU(cuCtxSynchronize));
    // The owner's context is current; the stream is the other one's.
    must("cuCtxSetCurrent", CU(cuCtxSetCurrent, one));
    say_result("stream_of_another_context", CU(cuMemcpyDtoHAsync_v2, &word, there, (size_t)4, stream));
    must("cuStreamCreate", CU(cuStreamCreate, &stream, 1u));
    must("cuCtxSetCurrent", CU(cuCtxSetCurrent, two));
    say_result("fill_in_the_owners_stream", CU(cuMemsetD8Async, there, 1, (size_t)16, stream));
}

static sigjmp_buf faulted;

static void on_fault(int number) {
    (void)number;
    siglongjmp(faulted, 1);
}

static int host_can_read(address at) {
    struct sigaction action = {.sa_handler = on_fault}, before;
    sigaction(SIGSEGV, &action, &before);
    int able = 0;
    if (!sigsetjmp(faulted, 1)) {
        (void)*(volatile char *)(uintptr_t)at;
        able = 1;
    }
    sigaction(SIGSEGV, &before, NULL);
    return able;
}

void foreign_facts(void) {
    struct properties properties = {.type = 1, .location_type = 1};
    struct access access = {.location_type = 1, .flags = 3};
    address linear = 0, mapped = 0, managed = 0;
    unsigned long long memory = 0;
    size_t grain = 2 << 20;
    void *pinned = NULL;
    begin();
    must("cuMemAlloc", CU(cuMemAlloc_v2, &linear, (size_t)4096));
    must("cuMemAddressReserve", CU(cuMemAddressReserve, &mapped, grain, (size_t)0, (address)0, 0ULL));
    must("cuMemCreate", CU(cuMemCreate, &memory, grain, &properties, 0ULL));
    must("cuMemMap", CU(cuMemMap, mapped, grain, (size_t)0, memory, 0ULL));
    must("cuMemSetAccess", CU(cuMemSetAccess, mapped, grain, &access, (size_t)1));
    must("cuMemAllocManaged", CU(cuMemAllocManaged, &managed, (size_t)4096, 1u));
    must("cuMemHostAlloc", CU(cuMemHostAlloc, &pinned, (size_t)4096, 0u));
    say_bool("host_reads_linear_memory", host_can_read(linear));
    say_bool("host_reads_mapped_memory", host_can_read(mapped));
    say_bool("host_reads_managed_memory", host_can_read(managed));
    say_bool("host_reads_pinned_memory", host_can_read((address)(uintptr_t)pinned));
}

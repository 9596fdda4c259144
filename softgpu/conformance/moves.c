// What moving memory off a device and back to the same addresses stands on: copies across mappings, attributes before and after a
// mapping is made anew, what a free waits for, host memory of a file.
#define _GNU_SOURCE
#include "facts.h"

#include <sys/mman.h>
#include <unistd.h>

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

enum { CONTEXT = 1, MEMORY_TYPE = 2, SYNC_MEMOPS = 6, BUFFER_ID = 7, DEVICE_ORDINAL = 9, LEGACY_IPC = 10, RANGE_START = 11, RANGE_SIZE = 12, MAPPED = 13 };

static struct properties properties = {.type = 1, .location_type = 1};
static struct access all = {.location_type = 1, .flags = 3};
static const size_t grain = 2 << 20;

// One chunk of physical memory, mapped and accessible.
static result back(address at, unsigned long long *memory) {
    result answer = CU(cuMemCreate, memory, grain, &properties, 0ULL);
    if (!answer) answer = CU(cuMemMap, at, grain, (size_t)0, *memory, 0ULL);
    if (!answer) answer = CU(cuMemSetAccess, at, grain, &all, (size_t)1);
    return answer;
}

static unsigned long long number(int attribute, address at) {
    unsigned long long value = 0;
    result answer = CU(cuPointerGetAttribute, &value, attribute, at);
    return answer ? ~0ULL : value;
}

static void attributes(const char *when, address base) {
    char fact[64];
    unsigned long long context = number(CONTEXT, base);
    snprintf(fact, sizeof fact, "%s_context_is_null", when);
    say_bool(fact, context == 0);
    snprintf(fact, sizeof fact, "%s_range_is_the_reservation", when);
    say_bool(fact, number(RANGE_START, base + grain + 1) == base && number(RANGE_SIZE, base) == 2 * grain);
    snprintf(fact, sizeof fact, "%s_legacy_ipc", when);
    say_number(fact, (long long)number(LEGACY_IPC, base));
    snprintf(fact, sizeof fact, "%s_sync_memops", when);
    say_number(fact, (long long)number(SYNC_MEMOPS, base));
}

// A graph with copies and a fill, made while the memory had other physical memory behind its addresses than when it runs.
static void graph_across_a_remap(address base, handle stream, unsigned char *bytes) {
    enum { PART = 4096, GLOBAL = 0 };
    static unsigned char seen[3 * PART];
    unsigned long long memory = 0;
    handle graph = NULL, exec = NULL;
    must("chunk for a graph", back(base, &memory));
    must("cuStreamBeginCapture", CU(cuStreamBeginCapture_v2, stream, GLOBAL));
    must("a copy in a graph", CU(cuMemcpyDtoDAsync_v2, base + PART, base, (size_t)PART, stream));
    must("a fill in a graph", CU(cuMemsetD8Async, base + 2 * PART, 5, (size_t)PART, stream));
    must("cuStreamEndCapture", CU(cuStreamEndCapture, stream, &graph));
    must("cuGraphInstantiate", CU(cuGraphInstantiateWithFlags, &exec, graph, 0ULL));
    must("a first launch", CU(cuGraphLaunch, exec, stream));
    must("its end", CU(cuStreamSynchronize, stream));
    must("cuMemUnmap", CU(cuMemUnmap, base, grain));
    // The second physical memory is there before the first is given back: they differ.
    unsigned long long other = 0;
    must("cuMemCreate", CU(cuMemCreate, &other, grain, &properties, 0ULL));
    must("cuMemRelease", CU(cuMemRelease, memory));
    must("cuMemMap", CU(cuMemMap, base, grain, (size_t)0, other, 0ULL));
    must("cuMemSetAccess", CU(cuMemSetAccess, base, grain, &all, (size_t)1));
    must("new bytes", CU(cuMemcpyHtoD_v2, base, bytes, (size_t)3 * PART));
    // From pageable memory they may arrive after the call, and the stream of the graph would not wait for them.
    must("the end of the new bytes", CU(cuCtxSynchronize));
    say_result("graph_of_before_a_remap.launch", CU(cuGraphLaunch, exec, stream));
    say_result("graph_of_before_a_remap.await", CU(cuStreamSynchronize, stream));
    CU(cuMemcpyDtoH_v2, seen, base, (size_t)3 * PART);
    say_bool("graph_of_before_a_remap.copies_the_new_memory", !memcmp(seen, bytes, PART) && !memcmp(seen + PART, bytes, PART));
    say_bool("graph_of_before_a_remap.fills_the_new_memory", seen[2 * PART] == 5 && seen[3 * PART - 1] == 5);
    // Without memory it is the end of the context.
    must("cuMemUnmap, again", CU(cuMemUnmap, base, grain));
    say_result("graph_of_unmapped.launch", CU(cuGraphLaunch, exec, stream));
    say_result("graph_of_unmapped.await", CU(cuStreamSynchronize, stream));
    say_result("graph_of_unmapped.then.alloc", CU(cuMemAlloc_v2, &base, grain));
}

// A second file where pinned memory was mapped: copies are between the device and the pages that were pinned.
static void file_at_pinned_addresses(address base, unsigned char *host, int pinned) {
    enum { PART = 4096 };
    static unsigned char seen[PART];
    int second = memfd_create("other facts", MFD_CLOEXEC);
    if (ftruncate(second, (off_t)(2 * grain))) must("ftruncate", 999);
    unsigned char *at = mmap(host, 2 * grain, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, second, 0);
    unsigned char *before = mmap(NULL, 2 * grain, PROT_READ | PROT_WRITE, MAP_SHARED, pinned, 0);
    memset(at, 1, 2 * PART), memset(before, 2, 2 * PART);
    must("cuMemsetD8", CU(cuMemsetD8_v2, base, 3, (size_t)PART));
    say_result("copy_to_anothers_addresses", CU(cuMemcpyDtoH_v2, at, base, (size_t)PART));
    say_bool("its_bytes_are_in_the_pinned_file", before[0] == 3 && before[PART - 1] == 3 && at[0] == 1 && at[PART - 1] == 1);
    say_result("copy_from_anothers_addresses", CU(cuMemcpyHtoD_v2, base, at + PART, (size_t)PART));
    say_result("unregister_anothers_addresses", CU(cuMemHostUnregister, at));
    CU(cuMemcpyDtoH_v2, seen, base, (size_t)PART);
    say_bool("its_bytes_are_of_the_pinned_file", seen[0] == 2 && seen[PART - 1] == 2);
    say_result("register_the_second_file", CU(cuMemHostRegister_v2, at, 2 * grain, 1u));
    must("cuMemsetD8", CU(cuMemsetD8_v2, base, 4, (size_t)PART));
    CU(cuMemcpyDtoH_v2, at, base, (size_t)PART);
    say_bool("its_bytes_are_in_the_second_file", at[0] == 4 && at[PART - 1] == 4 && before[0] == 3);
}

void moves_facts(void) {
    address base = 0, start = 0, linear = 0;
    unsigned long long memory[2] = {0, 0}, id[2], value = 0;
    size_t size = 0;
    int on = 1, wrong = 0;
    handle stream, event, context = begin();
    unsigned char *bytes = malloc(2 * grain), *seen = malloc(2 * grain);
    must("cuMemAddressReserve", CU(cuMemAddressReserve, &base, 2 * grain, (size_t)0, (address)0, 0ULL));
    must("cuStreamCreate", CU(cuStreamCreate, &stream, 1));
    must("first chunk", back(base, &memory[0]));
    must("second chunk", back(base + grain, &memory[1]));

    for (size_t i = 0; i < 2 * grain; i++) bytes[i] = (unsigned char)(i * 7 + (i >> 12));
    say_result("copy_in_across_mappings", CU(cuMemcpyHtoD_v2, base, bytes, 2 * grain));
    say_result("copy_out_across_mappings", CU(cuMemcpyDtoH_v2, seen, base, 2 * grain));
    say_bool("bytes_across_mappings_are_right", !memcmp(bytes, seen, 2 * grain));
    say_result("fill_across_mappings", CU(cuMemsetD8_v2, base + grain - 100, 9, (size_t)200));
    CU(cuMemcpyDtoH_v2, seen, base + grain - 100, (size_t)200);
    for (int i = 0; i < 200; i++) wrong += seen[i] != 9;
    say_number("bytes_not_filled_across_mappings", wrong);
    say_result("address_range", CU(cuMemGetAddressRange_v2, &start, &size, base + grain + 5));
    say_bool("address_range_is_one_mapping", start == base + grain && size == grain);

    attributes("mapped", base);
    id[0] = number(BUFFER_ID, base);
    say_bool("chunks_have_different_buffer_ids", id[0] != number(BUFFER_ID, base + grain));
    say_result("set_sync_memops", CU(cuPointerSetAttribute, &on, SYNC_MEMOPS, base));
    say_number("sync_memops_is", (long long)number(SYNC_MEMOPS, base));

    say_result("unmap_two_at_once", CU(cuMemUnmap, base, 2 * grain));
    say_result("release_after_unmap", CU(cuMemRelease, memory[0]));
    CU(cuMemRelease, memory[1]);
    say_result("context_of_unmapped", CU(cuPointerGetAttribute, &value, CONTEXT, base));
    say_result("address_range_of_unmapped", CU(cuMemGetAddressRange_v2, &start, &size, base));
    say_number("unmapped_is_mapped", (int)number(MAPPED, base));

    must("first chunk again", back(base, &memory[0]));
    must("second chunk again", back(base + grain, &memory[1]));
    attributes("remapped", base);
    id[1] = number(BUFFER_ID, base);
    say_bool("buffer_id_is_another_after_a_remap", id[0] != id[1]);
    say_result("copy_to_remapped", CU(cuMemcpyHtoD_v2, base, bytes, 2 * grain));
    memset(seen, 0, 2 * grain);
    CU(cuMemcpyDtoH_v2, seen, base, 2 * grain);
    say_bool("bytes_after_a_remap_are_right", !memcmp(bytes, seen, 2 * grain));

    // Host memory that is a shared file, pinned where it is mapped.
    int file = memfd_create("facts", MFD_CLOEXEC);
    if (ftruncate(file, (off_t)(2 * grain))) must("ftruncate", 999);
    void *host = mmap(NULL, 2 * grain, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    say_result("register_shared_file", CU(cuMemHostRegister_v2, host, 2 * grain, 1u));
    say_result("copy_to_shared_file", CU(cuMemcpyDtoHAsync_v2, host, base, 2 * grain, stream));
    say_result("await_copy", CU(cuStreamSynchronize, stream));
    say_bool("bytes_in_the_file_are_right", !memcmp(host, bytes, 2 * grain));
    file_at_pinned_addresses(base, host, file);

    // What a free waits for, and an event behind a whole context.
    uint32_t *word = NULL;
    must("cuMemHostAlloc", CU(cuMemHostAlloc, (void **)&word, (size_t)4096, 2u));
    *(volatile uint32_t *)word = 0;
    must("cuEventCreate", CU(cuEventCreate, &event, 2));
    must("cuMemAlloc", CU(cuMemAlloc_v2, &linear, grain));
    must("cuMemsetD8Async", CU(cuMemsetD8Async, base, 3, 2 * grain, stream));
    say_result("free_beside_work", CU(cuMemFree_v2, linear));
    say_result("work_of_another_stream_after_a_free", CU(cuStreamQuery, stream));
    must("cuStreamWaitValue32", CU(cuStreamWaitValue32_v2, stream, (address)(uintptr_t)word, 1u, 0u));
    say_result("event_behind_a_context", CU(cuCtxRecordEvent, context, event));
    say_result("event_before_the_value", CU(cuEventQuery, event));
    *(volatile uint32_t *)word = 1;
    say_result("await_event", CU(cuEventSynchronize, event));
    say_result("stream_after_the_event", CU(cuStreamQuery, stream));

    // Physical memory needs no current context.
    handle none = NULL;
    CU(cuCtxSetCurrent, none);
    say_result("create_without_a_context", CU(cuMemCreate, &value, grain, &properties, 0ULL));
    say_result("unmap_without_a_context", CU(cuMemUnmap, base, 2 * grain));

    must("cuCtxSetCurrent", CU(cuCtxSetCurrent, context));
    graph_across_a_remap(base, stream, bytes);
}

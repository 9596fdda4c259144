// Updates of executable graphs whose graphs have memory nodes.
//
// "Memory nodes: It is not possible to update a cudaGraphExec_t with a cudaGraph_t if the cudaGraph_t is currently instantiated as a
// different cudaGraphExec_t" (CUDA Programming Guide 4.2, Update Limitations).
#include "facts.h"

struct memory_node {
    int type, handles, location_type, location_id;
    void *security;
    size_t max;
    unsigned short usage;
    unsigned char reserved[54];
    const void *access;
    size_t accesses, bytes;
    address out;
};
struct set {
    address dst;
    size_t pitch;
    unsigned value, element;
    size_t width, height;
};
struct told {
    int reason;
    handle node, from;
};

enum { RESERVED = 2, NOT_SUPPORTED = 6 };

// A graph that allocates so many bytes, and frees them. Their address, too.
static handle allocating(size_t bytes, address *at) {
    handle graph = NULL, first = NULL, last = NULL;
    struct memory_node node = {.type = 1, .location_type = 1, .bytes = bytes};
    must("cuGraphCreate", CU(cuGraphCreate, &graph, 0));
    must("cuGraphAddMemAllocNode", CU(cuGraphAddMemAllocNode, &first, graph, NULL, (size_t)0, &node));
    must("cuGraphAddMemFreeNode", CU(cuGraphAddMemFreeNode, &last, graph, &first, (size_t)1, node.out));
    *at = node.out;
    return graph;
}

// A graph that allocates a MiB and fills its first word. The address, too.
static handle filling(unsigned value, address *at, handle context) {
    handle graph = NULL, first = NULL, last = NULL;
    struct memory_node node = {.type = 1, .location_type = 1, .bytes = 1 << 20};
    must("cuGraphCreate", CU(cuGraphCreate, &graph, 0));
    must("cuGraphAddMemAllocNode", CU(cuGraphAddMemAllocNode, &first, graph, NULL, (size_t)0, &node));
    struct set set = {.dst = node.out, .value = value, .element = 4, .width = 1, .height = 1};
    must("cuGraphAddMemsetNode", CU(cuGraphAddMemsetNode, &last, graph, &first, (size_t)1, &set, context));
    *at = node.out;
    return graph;
}

static handle instance(handle graph) {
    handle exec = NULL;
    must("cuGraphInstantiateWithFlags", CU(cuGraphInstantiateWithFlags, &exec, graph, 0ULL));
    return exec;
}

static long long reserved_after(const char *fact, handle exec, handle stream) {
    unsigned long long bytes = ~0ULL;
    say_result(fact, CU(cuGraphLaunch, exec, stream));
    CU(cuStreamSynchronize, stream);
    CU(cuDeviceGetGraphMemAttribute, 0, RESERVED, &bytes);
    return (long long)bytes;
}

// The allocation grows and shrinks. Graphs that are instantiated, or were before an update.
static void sizes(handle stream) {
    address at = 0;
    struct told told = {0};
    handle small = allocating(8 << 20, &at), large = allocating(80 << 20, &at), other = allocating(8 << 20, &at);
    handle exec = instance(small), second = instance(other), third = NULL;
    say_number("update.reserved_before", reserved_after("update.launch_before", exec, stream));
    say_result("update.of_an_allocation", CU(cuGraphExecUpdate_v2, exec, large, &told));
    say_number("update.of_an_allocation_has_the_reason", told.reason);
    say_number("update.reserved_by_larger", reserved_after("update.launch_of_larger", exec, stream));
    say_result("update.instantiate_the_new_graph", CU(cuGraphInstantiateWithFlags, &third, large, 0ULL));
    say_result("update.instantiate_the_old_graph", CU(cuGraphInstantiateWithFlags, &third, small, 0ULL));
    say_result("update.to_one_that_is_instantiated", CU(cuGraphExecUpdate_v2, exec, other, &told));
    say_bool("update.to_one_that_is_instantiated_is_not_supported", told.reason == NOT_SUPPORTED);
    must("cuGraphExecDestroy", CU(cuGraphExecDestroy, second));
    say_result("update.to_one_that_is_so_no_longer", CU(cuGraphExecUpdate_v2, exec, other, &told));
    must("cuDeviceGraphMemTrim", CU(cuDeviceGraphMemTrim, 0));
    say_number("update.reserved_by_smaller", reserved_after("update.launch_of_smaller", exec, stream));
    CU(cuGraphExecDestroy, exec);
}

// The memory of the launch before lives.
static void live(handle stream, handle context) {
    address old_at = 0, new_at = 0;
    uint32_t word = 0;
    struct told told = {0};
    handle old = filling(5, &old_at, context), new = filling(6, &new_at, context);
    handle exec = instance(old);
    must("cuGraphLaunch", CU(cuGraphLaunch, exec, stream));
    say_result("update.beside_live_memory", CU(cuGraphExecUpdate_v2, exec, new, &told));
    say_result("update.launch_beside_live_memory", CU(cuGraphLaunch, exec, stream));
    CU(cuStreamSynchronize, stream);
    CU(cuMemcpyDtoH_v2, &word, new_at, (size_t)4);
    say_number("update.word_at_the_new_address", word);
    CU(cuMemcpyDtoH_v2, &word, old_at, (size_t)4);
    say_number("update.word_at_the_old_address", word);
    say_result("update.free_at_the_new_address", CU(cuMemFree_v2, new_at));
    say_result("update.free_at_the_old_address", CU(cuMemFree_v2, old_at));
}

void graph_update_facts(void) {
    handle stream = NULL, context = begin();
    must("cuStreamCreate", CU(cuStreamCreate, &stream, 1));
    sizes(stream);
    live(stream, context);
}

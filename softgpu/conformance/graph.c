// Graphs built node by node, and graph memory.
#include "facts.h"

#include <unistd.h>

struct set {
    address dst;
    size_t pitch;
    unsigned value, element;
    size_t width, height;
};
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

struct side {
    size_t x, y, z, level;
    int type;
    const void *host;
    address at;
    void *array, *reserved;
    size_t pitch, rows;
};
struct box {
    struct side from, to;
    size_t width, height, depth;
};

// What an executable graph's copy and fill may be set to: a line of as much as a byte, between memory of the same kinds.
static void operands(address at, handle context) {
    enum { HOST = 1, DEVICE = 2 };
    static unsigned char bytes[256];
    handle graph = NULL, exec = NULL, copy = NULL, fill = NULL, rows = NULL;
    struct box line = {.from = {.type = DEVICE, .at = at, .pitch = 64, .rows = 1}, .to = {.type = DEVICE, .at = at + 1024, .pitch = 64, .rows = 1},
                       .width = 64, .height = 1, .depth = 1};
    struct box other = line;
    struct set set = {.dst = at, .pitch = 64, .value = 1, .element = 1, .width = 64, .height = 1}, two = set;
    two.height = 2;
    must("cuGraphCreate", CU(cuGraphCreate, &graph, 0));
    must("cuGraphAddMemcpyNode", CU(cuGraphAddMemcpyNode, &copy, graph, NULL, (size_t)0, &line, context));
    must("cuGraphAddMemsetNode", CU(cuGraphAddMemsetNode, &fill, graph, NULL, (size_t)0, &set, context));
    must("cuGraphAddMemsetNode", CU(cuGraphAddMemsetNode, &rows, graph, NULL, (size_t)0, &two, context));
    must("cuGraphInstantiateWithFlags", CU(cuGraphInstantiateWithFlags, &exec, graph, 0ULL));
    other.to.at = at + 2048, other.width = 32;
    say_result("exec.copy_elsewhere", CU(cuGraphExecMemcpyNodeSetParams, exec, copy, &other, context));
    other.width = 0;
    say_result("exec.copy_of_nothing", CU(cuGraphExecMemcpyNodeSetParams, exec, copy, &other, context));
    other.width = 32, other.height = 2;
    say_result("exec.copy_of_rows", CU(cuGraphExecMemcpyNodeSetParams, exec, copy, &other, context));
    other.height = 1, other.from.type = HOST, other.from.host = bytes;
    say_result("exec.copy_from_the_host", CU(cuGraphExecMemcpyNodeSetParams, exec, copy, &other, context));
    say_result("exec.fill_of_rows", CU(cuGraphExecMemsetNodeSetParams, exec, fill, &two, context));
    say_result("exec.fill_that_was_of_rows", CU(cuGraphExecMemsetNodeSetParams, exec, rows, &set, context));
    set.value = 2, set.width = 32;
    say_result("exec.fill_of_less", CU(cuGraphExecMemsetNodeSetParams, exec, fill, &set, context));
    CU(cuGraphExecDestroy, exec);
    CU(cuGraphDestroy, graph);
}

enum { USED, USED_HIGH, RESERVED, RESERVED_HIGH };

static unsigned long long graph_memory(int which) {
    unsigned long long value = ~0ULL;
    CU(cuDeviceGetGraphMemAttribute, 0, which, &value);
    return value;
}

// What graphs reserve whose memory is live: of two, with a node each, and of one with two nodes.
static void live_memory(handle stream) {
    handle graphs[2] = {NULL, NULL}, execs[2] = {NULL, NULL}, made = NULL;
    unsigned long long addresses[4] = {0};
    int count = 0;
    for (int round = 0; round < 2; round++) {
        int of_each = 1 + round, all = 2 - round;
        count = 0;
        for (int at = 0; at < all; at++) {
            must("cuGraphCreate", CU(cuGraphCreate, &graphs[at], 0));
            for (int i = 0; i < of_each; i++) {
                struct memory_node node = {.type = 1, .location_type = 1, .bytes = 8 << 20};
                must("cuGraphAddMemAllocNode", CU(cuGraphAddMemAllocNode, &made, graphs[at], NULL, (size_t)0, &node));
                addresses[count++] = node.out;
            }
            must("cuGraphInstantiateWithFlags", CU(cuGraphInstantiateWithFlags, &execs[at], graphs[at], 0ULL));
            must("cuGraphLaunch", CU(cuGraphLaunch, execs[at], stream));
        }
        must("cuStreamSynchronize", CU(cuStreamSynchronize, stream));
        say_number(round ? "memory.reserved_of_two_live_nodes" : "memory.reserved_of_two_live_graphs", (long long)graph_memory(RESERVED));
        while (count--)
            must("cuMemFree_v2", CU(cuMemFree_v2, addresses[count]));
        for (int at = 0; at < all; at++) {
            must("cuGraphExecDestroy", CU(cuGraphExecDestroy, execs[at]));
            must("cuGraphDestroy", CU(cuGraphDestroy, graphs[at]));
        }
        must("cuDeviceGraphMemTrim", CU(cuDeviceGraphMemTrim, 0));
    }
}

void graph_facts(void) {
    handle graph = NULL, exec = NULL, first = NULL, second = NULL, clone = NULL, stream = NULL, context = begin();
    address a = 0;
    size_t count = 9;
    uint32_t seen = 0;
    int type = -1;
    must("cuStreamCreate", CU(cuStreamCreate, &stream, 1));
    must("cuMemAlloc", CU(cuMemAlloc_v2, &a, (size_t)4096));
    say_result("create", CU(cuGraphCreate, &graph, 0));
    say_result("create_to_null", CU(cuGraphCreate, NULL, 0));
    say_result("create_flags", CU(cuGraphCreate, &clone, 1));
    struct set set = {.dst = a, .value = 5, .element = 4, .width = 1024, .height = 1};
    say_result("add_set", CU(cuGraphAddMemsetNode, &first, graph, NULL, (size_t)0, &set, context));
    set.value = 6, set.width = 16;
    say_result("add_after", CU(cuGraphAddMemsetNode, &second, graph, &first, (size_t)1, &set, context));
    say_result("add_empty", CU(cuGraphAddEmptyNode, &clone, graph, &second, (size_t)1));
    say_result("node_type", CU(cuGraphNodeGetType, first, &type));
    say_number("node_type_of_set", type);
    CU(cuGraphGetNodes, graph, NULL, &count);
    say_number("nodes", (long long)count);
    CU(cuGraphGetRootNodes, graph, NULL, &count);
    say_number("roots", (long long)count);
    CU(cuGraphGetEdges, graph, NULL, NULL, &count);
    say_number("edges", (long long)count);
    say_result("clone", CU(cuGraphClone, &clone, graph));
    say_result("instantiate", CU(cuGraphInstantiateWithFlags, &exec, graph, 0ULL));
    // cudarc 0.19.10 tests it on hardware.
    say_result("instantiate_auto_free_for_the_device", CU(cuGraphInstantiateWithFlags, &exec, graph, 5ULL));
    say_result("launch", CU(cuGraphLaunch, exec, stream));
    CU(cuStreamSynchronize, stream);
    CU(cuMemcpyDtoH_v2, &seen, a, (size_t)4);
    say_number("order_holds", seen);
    CU(cuMemcpyDtoH_v2, &seen, a + 4000, (size_t)4);
    say_number("all_of_it_ran", seen);
    say_result("launch_null", CU(cuGraphLaunch, NULL, stream));
    say_result("exec_destroy", CU(cuGraphExecDestroy, exec));
    say_result("destroy", CU(cuGraphDestroy, graph));
    say_result("destroy_clone", CU(cuGraphDestroy, clone));

    struct memory_node node = {.type = 1, .location_type = 1, .bytes = 1 << 20};
    must("cuGraphCreate", CU(cuGraphCreate, &graph, 0));
    say_number("memory.reserved_at_first", (long long)graph_memory(RESERVED));
    say_result("memory.alloc_node", CU(cuGraphAddMemAllocNode, &first, graph, NULL, (size_t)0, &node));
    say_bool("memory.address_is_known", node.out != 0);
    say_number("memory.reserved_by_the_node", (long long)graph_memory(RESERVED));
    set = (struct set){.dst = node.out, .value = 9, .element = 4, .width = 1024, .height = 1};
    say_result("memory.set_node", CU(cuGraphAddMemsetNode, &second, graph, &first, (size_t)1, &set, context));
    say_result("memory.free_node", CU(cuGraphAddMemFreeNode, &first, graph, &second, (size_t)1, node.out));
    say_result("memory.free_node_twice", CU(cuGraphAddMemFreeNode, &first, graph, &second, (size_t)1, node.out));
    say_result("memory.clone", CU(cuGraphClone, &clone, graph));
    say_result("memory.instantiate", CU(cuGraphInstantiateWithFlags, &exec, graph, 0ULL));
    say_number("memory.used_before", (long long)graph_memory(USED));
    say_result("memory.launch", CU(cuGraphLaunch, exec, stream));
    say_result("memory.launch_again", CU(cuGraphLaunch, exec, stream));
    say_result("memory.synchronize", CU(cuStreamSynchronize, stream));
    say_number("memory.used_after", (long long)graph_memory(USED));
    say_number("memory.reserved_after", (long long)graph_memory(RESERVED));
    say_result("memory.trim_beside_its_exec", CU(cuDeviceGraphMemTrim, 0));
    say_number("memory.used_after_that", (long long)graph_memory(USED));
    say_number("memory.reserved_after_that", (long long)graph_memory(RESERVED));
    say_result("memory.launch_after_that", CU(cuGraphLaunch, exec, stream));
    CU(cuStreamSynchronize, stream);
    say_number("memory.used_after_that_launch", (long long)graph_memory(USED));
    say_bool("memory.reserved_covers_it", graph_memory(RESERVED_HIGH) >= 1 << 20);
    say_result("memory.exec_destroy", CU(cuGraphExecDestroy, exec));
    say_number("memory.used_after_exec_destroy", (long long)graph_memory(USED));
    say_number("memory.reserved_after_exec_destroy", (long long)graph_memory(RESERVED));
    say_result("memory.trim", CU(cuDeviceGraphMemTrim, 0));
    say_number("memory.reserved_after_trim", (long long)graph_memory(RESERVED));
    say_result("memory.destroy", CU(cuGraphDestroy, graph));

    live_memory(stream);

    must("cuGraphCreate", CU(cuGraphCreate, &graph, 0));
    CU(cuGraphAddEmptyNode, &first, graph, NULL, (size_t)0);
    CU(cuGraphAddEmptyNode, &second, graph, &first, (size_t)1);
    // A driver may refuse the edge or the instantiation.
    result edge = CU(cuGraphAddDependencies, graph, &second, &first, (size_t)1);
    say_bool("cycle_is_refused", edge || CU(cuGraphInstantiateWithFlags, &exec, graph, 0ULL));
    operands(a, context);
}

// What graphs are told by. Drivers have the numbers from 13.1 on.
void told_facts(void) {
    handle graph = NULL, other = NULL, first = NULL, second = NULL, home = NULL;
    char path[64], begins[8] = {0};
    unsigned id = 0, other_id = 0;
    begin();
    must("cuGraphCreate", CU(cuGraphCreate, &graph, 0));
    must("cuGraphCreate", CU(cuGraphCreate, &other, 0));
    must("cuGraphAddEmptyNode", CU(cuGraphAddEmptyNode, &first, graph, NULL, (size_t)0));
    must("cuGraphAddEmptyNode", CU(cuGraphAddEmptyNode, &second, graph, &first, (size_t)1));
    snprintf(path, sizeof path, "/tmp/facts-%d.dot", getpid());
    say_result("drawing", CU(cuGraphDebugDotPrint, graph, path, 0u));
    FILE *file = fopen(path, "r");
    say_bool("drawing_is_a_digraph", file && fread(begins, 1, 7, file) == 7 && !strcmp(begins, "digraph"));
    if (file) fclose(file);
    remove(path);
    say_result("drawing_to_null", CU(cuGraphDebugDotPrint, graph, NULL, 0u));
    say_result("drawing_of_null", CU(cuGraphDebugDotPrint, NULL, path, 0u));
    static const char *const numbers[] = {"graph", "other_graph", "graphs_have_numbers_of_their_own", "graph_to_null", "node", "other_node",
                                          "nodes_have_numbers_of_their_own", "home", "home_is_the_graph", NULL};
    if (lacks("cuGraphGetId", numbers)) return;
    say_result("graph", CU(cuGraphGetId, graph, &id));
    say_result("other_graph", CU(cuGraphGetId, other, &other_id));
    say_bool("graphs_have_numbers_of_their_own", id != other_id);
    say_result("graph_to_null", CU(cuGraphGetId, graph, NULL));
    say_result("node", CU(cuGraphNodeGetLocalId, first, &id));
    say_result("other_node", CU(cuGraphNodeGetLocalId, second, &other_id));
    say_bool("nodes_have_numbers_of_their_own", id != other_id);
    say_result("home", CU(cuGraphNodeGetContainingGraph, first, &home));
    say_bool("home_is_the_graph", home == graph);
}

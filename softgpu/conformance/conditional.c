// Conditional nodes. Conditions have default values only: no kernel here sets one.
#include "facts.h"

enum { IF, WHILE, SWITCH };
struct set {
    address dst;
    size_t pitch;
    unsigned value, element;
    size_t width, height;
};
struct params {
    int type, reserved[3];
    unsigned long long condition;
    unsigned kind, size;
    handle *bodies, context;
    char rest[256 - 48];
};
struct host {
    void (*function)(void *);
    void *argument;
};

static handle context, stream;
static address at;

static void nothing(void *argument) { (void)argument; }

static unsigned long long condition(handle graph, unsigned value, unsigned flags) {
    unsigned long long made = 0;
    must("cuGraphConditionalHandleCreate", CU(cuGraphConditionalHandleCreate, &made, graph, context, value, flags));
    return made;
}

static result node(handle *made, handle graph, struct params *params, unsigned long long condition, unsigned kind, unsigned size) {
    *params = (struct params){.type = 13, .condition = condition, .kind = kind, .size = size, .context = context};
    return CU(cuGraphAddNode, made, graph, NULL, (size_t)0, params);
}

// Which bodies have run: body N writes N + 1 at word N.
static void run(const char *fact, unsigned kind, unsigned size, unsigned value, unsigned flags) {
    handle graph = NULL, exec = NULL, made = NULL;
    struct params params;
    uint32_t seen[3] = {0};
    char text[64];
    must("cuGraphCreate", CU(cuGraphCreate, &graph, 0));
    must("cuMemsetD32", CU(cuMemsetD32_v2, at, 0, (size_t)3));
    must("cuCtxSynchronize", CU(cuCtxSynchronize));
    must("cuGraphAddNode", node(&made, graph, &params, condition(graph, value, flags), kind, size));
    for (unsigned i = 0; i < size; i++) {
        struct set set = {.dst = at + 4 * i, .value = i + 1, .element = 4, .width = 1, .height = 1};
        must("cuGraphAddMemsetNode", CU(cuGraphAddMemsetNode, &made, params.bodies[i], NULL, (size_t)0, &set, context));
    }
    must("cuGraphInstantiate", CU(cuGraphInstantiateWithFlags, &exec, graph, 0ULL));
    must("cuGraphLaunch", CU(cuGraphLaunch, exec, stream));
    must("cuStreamSynchronize", CU(cuStreamSynchronize, stream));
    must("cuMemcpyDtoH", CU(cuMemcpyDtoH_v2, seen, at, sizeof seen));
    snprintf(text, sizeof text, "%u%u%u", seen[0], seen[1], seen[2]);
    say(fact, text);
    CU(cuGraphExecDestroy, exec), CU(cuGraphDestroy, graph);
}

void conditional_facts(void) {
    handle graph = NULL, other = NULL, child = NULL, made = NULL, again = NULL, exec = NULL;
    unsigned long long first = 0, second = 0;
    struct params params, refused;
    int type = -1;
    size_t count = 9;
    context = begin();
    must("cuStreamCreate", CU(cuStreamCreate, &stream, 1));
    must("cuMemAlloc", CU(cuMemAlloc_v2, &at, (size_t)4096));
    must("cuGraphCreate", CU(cuGraphCreate, &graph, 0) || CU(cuGraphCreate, &other, 0));

    say_result("condition", CU(cuGraphConditionalHandleCreate, &first, graph, context, 1, 1));
    say_result("condition_to_null", CU(cuGraphConditionalHandleCreate, NULL, graph, context, 1, 1));
    say_result("condition_of_no_graph", CU(cuGraphConditionalHandleCreate, &second, NULL, context, 1, 1));
    say_result("condition_flags", CU(cuGraphConditionalHandleCreate, &second, graph, context, 1, 2));
    say_result("instantiate_without_its_node", CU(cuGraphInstantiateWithFlags, &exec, graph, 0ULL));

    say_result("if_without_bodies", node(&made, graph, &refused, first, IF, 0));
    say_result("if_of_three_bodies", node(&made, graph, &refused, first, IF, 3));
    say_result("while_of_two_bodies", node(&made, graph, &refused, first, WHILE, 2));
    say_result("switch_without_bodies", node(&made, graph, &refused, first, SWITCH, 0));
    say_result("no_such_type", node(&made, graph, &refused, first, 3, 1));
    say_result("no_such_condition", node(&made, graph, &refused, 0, IF, 1));
    say_result("condition_of_another_graph", node(&made, other, &refused, first, IF, 1));
    say_result("node", node(&made, graph, &params, first, IF, 2));
    say_bool("bodies_are_told", params.bodies && params.bodies[0] && params.bodies[1] && params.bodies[0] != params.bodies[1]);
    say_result("condition_again", node(&again, graph, &refused, first, IF, 1));
    say_result("node_type", CU(cuGraphNodeGetType, made, &type));
    say_number("node_type_of_it", type);
    CU(cuGraphGetNodes, params.bodies[0], NULL, &count);
    say_number("nodes_of_a_body", (long long)count);
    say_result("destroy_body", CU(cuGraphDestroy, params.bodies[0]));
    say_result("clone", CU(cuGraphClone, &child, graph));
    say_result("as_child", CU(cuGraphAddChildGraphNode, &child, other, NULL, (size_t)0, graph));
    say_result("instantiate", CU(cuGraphInstantiateWithFlags, &exec, graph, 0ULL));
    CU(cuGraphExecDestroy, exec);

    // A condition of the whole graph, in a body.
    second = condition(graph, 0, 1);
    say_result("node_in_a_body", node(&again, params.bodies[1], &refused, second, WHILE, 1));
    say_result("destroy_node", CU(cuGraphDestroyNode, made));

    struct host host = {nothing, NULL};
    must("cuGraphAddNode", node(&made, graph, &params, first, IF, 1) || node(&made, graph, &refused, second, IF, 1));
    say_result("host_node_in_a_body", CU(cuGraphAddHostNode, &again, params.bodies[0], NULL, (size_t)0, &host));
    say_result("instantiate_host_node_in_a_body", CU(cuGraphInstantiateWithFlags, &exec, graph, 0ULL));

    run("if_0", IF, 1, 0, 1);
    run("if_1", IF, 1, 1, 1);
    run("if_7", IF, 1, 7, 1);
    run("else_0", IF, 2, 0, 1);
    run("else_1", IF, 2, 1, 1);
    run("while_0", WHILE, 1, 0, 1);
    run("switch_0", SWITCH, 3, 0, 1);
    run("switch_2", SWITCH, 3, 2, 1);
    run("switch_3", SWITCH, 3, 3, 1);
}

/* Graphs. */
static int graph_create(struct thread *t) {
    unsigned to = UNUSED(t, graph);
    if (t->graph[to]) return EMPTY;
    return CALL("cuGraphCreate", (void **, unsigned))(&t->graph[to], rarely(t));
}
static int graph_destroy(struct thread *t) {
    unsigned of = USED(t, graph);
    int result = CALL("cuGraphDestroy", (void *))(t->graph[of]);
    if (!result) t->graph[of] = NULL;
    return result;
}
static int graph_memset(struct thread *t) {
    struct memset_params params = {t->fixed, STATIC, below(t, 256), rarely(t) ? 3 : 1, STATIC, 1};
    void *node;
    return CALL("cuGraphAddMemsetNode", (void **, void *, void **, size_t, void *, void *))(&node, some(t, t->graph), NULL, 0, &params, primary);
}
static int graph_empty(struct thread *t) {
    void *node;
    return CALL("cuGraphAddEmptyNode", (void **, void *, void **, size_t))(&node, some(t, t->graph), NULL, 0);
}
static int graph_memory(struct thread *t) {
    struct node_params params = {{1, 0, {1, rarely(t) ? 99 : 0}, NULL, 0, {0}}, NULL, 0, some_bytes(t), 0};
    void *node, *after, *graph = some(t, t->graph);
    int result = CALL("cuGraphAddMemAllocNode", (void **, void *, void **, size_t, struct node_params *))(&node, graph, NULL, 0, &params);
    if (!result) result = CALL("cuGraphAddMemFreeNode", (void **, void *, void **, size_t, dptr))(&after, graph, &node, 1, params.at);
    return result;
}
static int graph_clone(struct thread *t) {
    unsigned to = UNUSED(t, graph);
    if (t->graph[to]) return EMPTY;
    return CALL("cuGraphClone", (void **, void *))(&t->graph[to], some(t, t->graph));
}
static int graph_nodes(struct thread *t) {
    size_t count = 0;
    int result = CALL("cuGraphGetNodes", (void *, void **, size_t *))(some(t, t->graph), NULL, &count);
    if (!result) snprintf(t->extra, sizeof t->extra, "%zu", count);
    return result;
}
static int instantiate(struct thread *t) {
    static const u64 flags[] = {0, 0, 1, 1u << 20};
    unsigned to = UNUSED(t, exec);
    void *graph = some(t, t->graph);
    if (t->exec[to]) return EMPTY;
    return CALL("cuGraphInstantiateWithFlags", (void **, void *, u64))(&t->exec[to], graph, flags[below(t, 4)]);
}
static int exec_destroy(struct thread *t) {
    unsigned of = USED(t, exec);
    int result = CALL("cuGraphExecDestroy", (void *))(t->exec[of]);
    if (!result) t->exec[of] = NULL;
    return result;
}
static int graph_launch(struct thread *t) {
    void *exec = some(t, t->exec), *stream = some_stream(t);
    if (t->forced) return OUT_OF_MEMORY;
    int result = CALL("cuGraphLaunch", (void *, void *))(exec, stream);
    if (!result && !captures(stream)) result = CALL("cuStreamSynchronize", (void *))(stream);
    return result;
}
static int graph_upload(struct thread *t) {
    void *exec = some(t, t->exec), *stream = some_stream(t);
    if (t->forced) return OUT_OF_MEMORY;
    return CALL("cuGraphUpload", (void *, void *))(exec, stream);
}
static int graph_trim(struct thread *t) { return CALL("cuDeviceGraphMemTrim", (int))(rarely(t) ? 99 : 0); }

/* One of a graph's nodes, or none. */
static void *some_node(struct thread *t, void *graph) {
    void *nodes[64];
    size_t count = 64;
    unsigned which = below(t, 64);
    if (!graph || graph == garbage() || CALL("cuGraphGetNodes", (void *, void **, size_t *))(graph, nodes, &count) || !count) return NULL;
    return nodes[which % (count < 64 ? count : 64)];
}
static int graph_kernel(struct thread *t) {
    u64 time = 1000;
    void *parameters[] = {&time}, *node;
    struct kernel_params params = {some(t, t->function), {1, 1, 1}, {rarely(t) ? 4096 : 32, 1, 1}, 0, parameters, NULL, NULL, NULL};
    return CALL("cuGraphAddKernelNode_v2", (void **, void *, void **, size_t, const struct kernel_params *))(&node, some(t, t->graph), NULL, 0, &params);
}
static int graph_host(struct thread *t) {
    struct host_params params = {rarely(t) ? NULL : counts, &t->other_calls};
    void *node;
    return CALL("cuGraphAddHostNode", (void **, void *, void **, size_t, const struct host_params *))(&node, some(t, t->graph), NULL, 0, &params);
}
static int graph_copy(struct thread *t) {
    struct copy3d copy = {.st = 2, .sd = t->fixed, .dt = rarely(t) ? 9 : 2, .dd = t->fixed + 2048, .width = 64, .height = 1, .depth = 1};
    void *node;
    return CALL("cuGraphAddMemcpyNode", (void **, void *, void **, size_t, const struct copy3d *, void *))(&node, some(t, t->graph), NULL, 0, &copy, primary);
}
static int graph_event(struct thread *t) {
    void *node, *graph = some(t, t->graph), *event = some(t, t->event);
    return CALL(below(t, 2) ? "cuGraphAddEventRecordNode" : "cuGraphAddEventWaitNode", (void **, void *, void **, size_t, void *))(&node, graph, NULL, 0, event);
}
static int graph_child(struct thread *t) {
    unsigned to = slot(t), of = USED(t, graph);
    size_t inside = 0;
    void *node, *child = t->graph[of];
    if (to == of || !child || CALL("cuGraphGetNodes", (void *, void **, size_t *))(child, NULL, &inside) || inside > 20) return EMPTY;
    return CALL("cuGraphAddChildGraphNode", (void **, void *, void **, size_t, void *))(&node, t->graph[to], NULL, 0, child);
}
static int graph_edge(struct thread *t) {
    void *graph = some(t, t->graph), *from = some_node(t, graph), *to = some_node(t, graph);
    return CALL(rarely(t) ? "cuGraphRemoveDependencies" : "cuGraphAddDependencies", (void *, void **, void **, size_t))(graph, &from, &to, 1);
}
static int graph_told(struct thread *t) {
    void *graph = some(t, t->graph);
    size_t roots = 0, edges = 0;
    int type = -1, result = CALL("cuGraphGetRootNodes", (void *, void **, size_t *))(graph, NULL, &roots);
    int listed = CALL("cuGraphGetEdges", (void *, void **, void **, size_t *))(graph, NULL, NULL, &edges);
    int typed = CALL("cuGraphNodeGetType", (void *, int *))(some_node(t, graph), &type);
    snprintf(t->extra, sizeof t->extra, "%zu %d %zu %d %d", roots, listed, edges, typed, type);
    return result;
}
static int node_destroy(struct thread *t) { return CALL("cuGraphDestroyNode", (void *))(some_node(t, some(t, t->graph))); }
static int node_set(struct thread *t) {
    struct memset_params params = {t->fixed, STATIC, below(t, 256), 1, 512, 1};
    void *graph = some(t, t->graph), *node = some_node(t, graph);
    return CALL("cuGraphMemsetNodeSetParams", (void *, const struct memset_params *))(node, &params);
}
static int exec_set(struct thread *t) {
    struct memset_params params = {t->fixed, STATIC, below(t, 256), 1, 512, 1};
    unsigned of = USED(t, graph);
    void *node = some_node(t, t->graph[of]), *exec = some(t, t->exec);
    return CALL("cuGraphExecMemsetNodeSetParams", (void *, void *, const struct memset_params *, void *))(exec, node, &params, primary);
}
static int exec_enable(struct thread *t) {
    void *graph = some(t, t->graph), *node = some_node(t, graph), *exec = some(t, t->exec);
    unsigned on = 9;
    int set = CALL("cuGraphNodeSetEnabled", (void *, void *, unsigned))(exec, node, below(t, 2));
    int result = CALL("cuGraphNodeGetEnabled", (void *, void *, unsigned *))(exec, node, &on);
    snprintf(t->extra, sizeof t->extra, "%d %u", set, on);
    return result;
}
static int exec_update(struct thread *t) {
    struct { int result; void *node, *from; } told = {-1, NULL, NULL};
    int result = CALL("cuGraphExecUpdate_v2", (void *, void *, void *))(some(t, t->exec), some(t, t->graph), &told);
    snprintf(t->extra, sizeof t->extra, "%d", told.result);
    return result;
}
static int exec_flags(struct thread *t) {
    u64 flags = 0;
    int result = CALL("cuGraphExecGetFlags", (void *, u64 *))(some(t, t->exec), &flags);
    if (!result) snprintf(t->extra, sizeof t->extra, "%u", (unsigned)flags);
    return result;
}
static int object_create(struct thread *t) {
    unsigned to = UNUSED(t, object);
    if (t->object[to]) return EMPTY;
    return CALL("cuUserObjectCreate", (void **, void *, void (*)(void *), unsigned, unsigned))(
        &t->object[to], &t->other_calls, counts, rarely(t) ? 0 : 1, rarely(t) ? 0 : 1);
}
static int object_give(struct thread *t) {
    unsigned of = USED(t, object);
    if (!t->object[of]) return EMPTY;
    int result = CALL("cuGraphRetainUserObject", (void *, void *, unsigned, unsigned))(some(t, t->graph), t->object[of], 1, below(t, 2));
    if (result) CALL("cuUserObjectRelease", (void *, unsigned))(t->object[of], 1);
    t->object[of] = NULL;
    return result;
}
/* A graph that allocates, uses and frees memory, twice over: launched, waited for, trimmed. */
static int graph_whole(struct thread *t) {
    struct node_params params = {{1, 0, {1, 0}, NULL, 0, {0}}, NULL, 0, (1 + below(t, 16)) * MIB, 0};
    void *graph = NULL, *alloc = NULL, *set = NULL, *freed = NULL, *exec = NULL, *stream = stream_of(t, slot(t));
    if (captures(stream)) return EMPTY;
    must(CALL("cuGraphCreate", (void **, unsigned))(&graph, 0), "cuGraphCreate");
    int result = CALL("cuGraphAddMemAllocNode", (void **, void *, void **, size_t, struct node_params *))(&alloc, graph, NULL, 0, &params);
    struct memset_params fill = {params.at, 64, 9, 1, 64, 1};
    if (!result) result = CALL("cuGraphAddMemsetNode", (void **, void *, void **, size_t, void *, void *))(&set, graph, &alloc, 1, &fill, primary);
    if (!result) result = CALL("cuGraphAddMemFreeNode", (void **, void *, void **, size_t, dptr))(&freed, graph, &set, 1, params.at);
    if (!result) result = CALL("cuGraphInstantiateWithFlags", (void **, void *, u64))(&exec, graph, 0);
    for (int i = 0; i < 2 && !result; i++) result = CALL("cuGraphLaunch", (void *, void *))(exec, stream);
    int synced = CALL("cuStreamSynchronize", (void *))(stream);
    if (exec) CALL("cuGraphExecDestroy", (void *))(exec);
    CALL("cuGraphDestroy", (void *))(graph);
    if (t->forced && !result) result = OUT_OF_MEMORY;
    if (result != OUT_OF_MEMORY) snprintf(t->extra, sizeof t->extra, "%d", synced);
    return result;
}

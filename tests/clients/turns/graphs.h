/* An executable graph of one kernel that is made anew, changed and launched. */
static void *replayed;

static int graph_of_one(void **graph, uint64_t ns) {
    TRY(CALL("cuStreamBeginCapture_v2", (void *, int))(streams[2], 1));
    TRY(spin(ns, streams[2]));
    return CALL("cuStreamEndCapture", (void *, void **))(streams[2], graph);
}

static int make_graph(uint64_t ns) {
    void *graph;
    if (replayed) TRY(CALL("cuGraphExecDestroy", (void *))(replayed));
    TRY(graph_of_one(&graph, ns));
    TRY(CALL("cuGraphInstantiateWithFlags", (void **, void *, unsigned long long))(&replayed, graph, 0));
    return CALL("cuGraphDestroy", (void *))(graph);
}

static int change_graph(uint64_t ns) {
    void *graph, *result[4];
    TRY(graph_of_one(&graph, ns));
    TRY(CALL("cuGraphExecUpdate_v2", (void *, void *, void *))(replayed, graph, result));
    return CALL("cuGraphDestroy", (void *))(graph);
}

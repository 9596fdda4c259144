/* What keeps an address of memory, and work that a free waits for. */

/* A texture over a slot. */
static int texture(int i) {
    struct { int kind, gap; dptr at; int format; unsigned channels; size_t bytes; unsigned char rest[104]; unsigned flags; } resource;
    unsigned char sampling[256];
    unsigned long long made;
    memset(&resource, 0, sizeof resource);
    memset(sampling, 0, sizeof sampling);
    resource.kind = 2, resource.at = slots[i], resource.format = 3, resource.channels = 1, resource.bytes = sizes[i] & ~(size_t)3;
    return CALL("cuTexObjectCreate", (unsigned long long *, const void *, const void *, const void *))(&made, &resource, sampling, NULL);
}

/* A box of bytes between devices' addresses: CUDA_MEMCPY3D. */
struct place { size_t x, y, z, level; int kind; const void *host; dptr at; void *array, *reserved; size_t pitch, height; };
static struct { struct place from, to; size_t width, height, depth; } box;

static void *nodes[2];

/* A graph made by hand, of a copy from slot I to slot J behind a memset of slot I, ready to be launched. */
static int by_hand(int i, int j, unsigned value) {
    struct { dptr at; size_t pitch; unsigned value, element; size_t width, height; } memset_of = {slots[i], 0, value, 4, sizes[i] / 4, 1};
    void *graph;
    memset(&box, 0, sizeof box);
    box.from.kind = box.to.kind = 2;
    box.from.at = slots[i], box.to.at = slots[j];
    box.width = sizes[i], box.height = box.depth = 1;
    TRY(CALL("cuGraphCreate", (void **, unsigned))(&graph, 0));
    TRY(CALL("cuGraphAddMemsetNode", (void **, void *, void **, size_t, const void *, void *))(&nodes[0], graph, NULL, 0, &memset_of, context));
    TRY(CALL("cuGraphAddMemcpyNode", (void **, void *, void **, size_t, const void *, void *))(&nodes[1], graph, nodes, 1, &box, context));
    return CALL("cuGraphInstantiateWithFlags", (void **, void *, unsigned long long))(&exec, graph, 0);
}

/* The same graph copies to another slot from now on. */
static int redirect(int j) {
    box.to.at = slots[j];
    return CALL("cuGraphExecMemcpyNodeSetParams", (void *, void *, const void *, void *))(exec, nodes[1], &box, context);
}

static void *letting_go(void *nothing) {
    usleep(20000);
    current();
    let_go();
    return nothing;
}

static void sleeping(void *nothing) {
    (void)nothing;
    usleep(20000);
}

static void *other_context;

static int spin_function(void **made) {
    void *module;
    if (*made) return 0;
    TRY(CALL("cuModuleLoadData", (void **, const void *))(&module, "any image"));
    return CALL("cuModuleGetFunction", (void **, void *, const char *))(made, module, "spin");
}

/* Submits work that takes a while, frees a slot, and asks the stream: 0 if the work is complete. */
static int outlasts(int i, int kind) {
    static void *spin;
    void *graph, *ready;
    uint64_t ns = 20000000;
    void *parameters[] = {&ns};
    pthread_t thread;
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **) =
        (int (*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))symbol("cuLaunchKernel");
    TRY(spin_function(&spin));
    if (kind == 0) TRY(launch(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    else if (kind == 1) TRY(CALL("cuLaunchHostFunc", (void *, void (*)(void *), void *))(stream, sleeping, NULL));
    else if (kind == 2) {
        TRY(hold(1));
        pthread_create(&thread, NULL, letting_go, NULL);
    } else if (kind == 3) {
        TRY(CALL("cuStreamBeginCapture_v2", (void *, int))(stream, 2));
        TRY(launch(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
        TRY(CALL("cuStreamEndCapture", (void *, void **))(stream, &graph));
        TRY(CALL("cuGraphInstantiateWithFlags", (void **, void *, unsigned long long))(&ready, graph, 0));
        TRY(CALL("cuGraphLaunch", (void *, void *))(ready, stream));
    }
    TRY(CALL("cuMemFree_v2", (dptr))(slots[i]));
    int left = CALL("cuStreamQuery", (void *))(stream);
    if (kind == 2) pthread_join(thread, NULL);
    return left;
}

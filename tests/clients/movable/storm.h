/* Threads at random. */
static pthread_t workers[16];
static int worker_count, small;
static atomic_int stopping, failed;
static atomic_long done, wrong;

/* A kernel of a while that needs its memory for all of it. Nothing waits for it here. */
static int hold_on(dptr at, uint64_t bytes, uint64_t ns, void *in) {
    static _Thread_local void *module, *function;
    void *parameters[] = {&ns, &at, &bytes};
    if (!function) {
        TRY(CALL("cuModuleLoadData", (void **, const void *))(&module, "any image"));
        TRY(CALL("cuModuleGetFunction", (void **, void *, const char *))(&function, module, "hold"));
    }
    return CALL("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                                   void **))(function, 1, 1, 1, 1, 1, 1, 0, in, parameters, NULL);
}

struct mine { dptr at; size_t size; uint64_t seed; uint32_t value; int by_value, in_order; };

/* cuMemFree. Of the pool's memory it waits for no work, and takes it for over. */
static int let_be(struct mine *it, void *in) {
    if (it->in_order) TRY(CALL("cuStreamSynchronize", (void *))(in));
    return CALL("cuMemFree_v2", (dptr))(it->at);
}

static int graph_of(dptr at, uint64_t count, uint32_t value, void *in, void **made) {
    void *graph;
    TRY(CALL("cuStreamBeginCapture_v2", (void *, int))(in, 2));
    TRY(set(at, count, value, in));
    TRY(CALL("cuStreamEndCapture", (void *, void **))(in, &graph));
    TRY(CALL("cuGraphInstantiateWithFlags", (void **, void *, unsigned long long))(made, graph, 0));
    return CALL("cuGraphDestroy", (void *))(graph);
}

static uint64_t next(uint64_t *seed) {
    *seed = *seed * 6364136223846793005ull + 1;
    return *seed >> 33;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static long allowed;

/* With SMALL, waits until the thread may go on. */
static void await(void) {
    if (!small) return;
    pthread_mutex_lock(&lock);
    while (!allowed && !stopping) pthread_cond_wait(&more, &lock);
    if (allowed) allowed--;
    pthread_mutex_unlock(&lock);
}

static void allow(long count) {
    pthread_mutex_lock(&lock);
    allowed += count;
    pthread_cond_broadcast(&more);
    pthread_mutex_unlock(&lock);
}

static int one(struct mine *own, uint64_t *seed, void *in) {
    struct mine *it = &own[next(seed) % (small ? 1 : 3)];
    int error = 0;
    if (!it->at) {
        /* Of chunks of its own, and parts of slabs; of rows, and of the pool. */
        if (small) it->size = next(seed) % 2 ? (1 << 20) + next(seed) % 64 * 4 : 4 + next(seed) % 16384 * 4;
        else it->size = next(seed) % 6 ? ((next(seed) % 8 + 1) << 20) - (next(seed) % 3) * 4 : 4 + next(seed) % 200000 * 4;
        it->in_order = next(seed) % 4 == 0;
        if (it->in_order) {
            TRY(CALL("cuMemAllocAsync", (dptr *, size_t, void *))(&it->at, it->size, in));
            TRY(CALL("cuStreamSynchronize", (void *))(in));
        } else if (next(seed) % 8) TRY(CALL("cuMemAlloc_v2", (dptr *, size_t))(&it->at, it->size));
        else {
            size_t pitch;
            TRY(CALL("cuMemAllocPitch_v2", (dptr *, size_t *, size_t, size_t, unsigned))(&it->at, &pitch, 1 + next(seed) % 3 * 600, 5, 4));
            it->size = pitch * 5;
        }
        it->by_value = 0;
        it->seed = next(seed);
        return fill_bytes(it->at, it->size, it->seed);
    }
    if (small) {
        /* Every call follows a check of what came back. */
        wrong += check_bytes(it->at, it->size, it->seed, it->by_value ? &it->value : NULL, &error);
        TRY(error);
    }
    switch (next(seed) % (small ? 6 : 9)) {
    case 0:
        if (!small) wrong += check_bytes(it->at, it->size, it->seed, it->by_value ? &it->value : NULL, &error);
        TRY(error);
        if (it->in_order && next(seed) % 4) TRY(CALL("cuMemFreeAsync", (dptr, void *))(it->at, in));
        else TRY(let_be(it, in));
        it->at = 0;
        return 0;
    case 1:
        it->value = next(seed);
        it->by_value = 1;
        TRY(set(it->at, it->size / 4, it->value, in));
        return CALL("cuStreamSynchronize", (void *))(in);
    case 2:
        it->value = next(seed);
        it->by_value = 1;
        TRY(CALL("cuMemsetD32_v2", (dptr, unsigned, size_t))(it->at, it->value, it->size / 4));
        /* The other streams do not wait for the legacy one. */
        return CALL("cuStreamSynchronize", (void *))(NULL);
    case 3:
        it->by_value = 0;
        it->seed = next(seed);
        return fill_bytes(it->at, it->size, it->seed);
    case 4: {
        void *graph;
        it->value = next(seed);
        it->by_value = 1;
        TRY(graph_of(it->at, it->size / 4, it->value, in, &graph));
        TRY(CALL("cuGraphLaunch", (void *, void *))(graph, in));
        TRY(CALL("cuStreamSynchronize", (void *))(in));
        return CALL("cuGraphExecDestroy", (void *))(graph);
    }
    case 5: return hold_on(it->at, it->size, 1 + next(seed) % (small ? 500000 : 3000000), in);
    default:
        wrong += check_bytes(it->at, it->size, it->seed, it->by_value ? &it->value : NULL, &error);
        return error;
    }
}

static void *work(void *number) {
    struct mine own[3] = {{0}};
    uint64_t seed = (uintptr_t)number + 1;
    void *in;
    int error = current();
    if (!error) error = CALL("cuStreamCreate", (void **, unsigned))(&in, 1);
    while (!error && !stopping && !failed) {
        await();
        error = one(own, &seed, in);
        done++;
    }
    for (int i = 0; i < 3 && !error; i++) {
        if (!own[i].at) continue;
        wrong += check_bytes(own[i].at, own[i].size, own[i].seed, own[i].by_value ? &own[i].value : NULL, &error);
        if (!error) error = let_be(&own[i], in);
    }
    if (error) failed = error;
    return NULL;
}

/* Threads that are given each other's addresses. */
static void *pairs(void *count) {
    int error = current();
    dptr at;
    for (uintptr_t n = 0; n < (uintptr_t)count && !error && !failed; n++) {
        error = CALL("cuMemAlloc_v2", (dptr *, size_t))(&at, 2 << 20);
        if (!error) error = CALL("cuMemFree_v2", (dptr))(at);
    }
    if (error) failed = error;
    return NULL;
}

static int churn(int count, uintptr_t each) {
    pthread_t threads[16];
    failed = 0;
    for (int n = 0; n < count && n < 16; n++) pthread_create(&threads[n], NULL, pairs, (void *)each);
    for (int n = 0; n < count && n < 16; n++) pthread_join(threads[n], NULL);
    return failed;
}

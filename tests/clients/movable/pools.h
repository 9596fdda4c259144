/* Pools, their attributes and streams. */
static void *pools[4], *streams[3];
static dptr word;

static void *stream_of(unsigned s) {
    s %= 3;
    if (s == 1) return stream;
    if (s == 2 && !streams[2]) CALL("cuStreamCreate", (void **, unsigned))(&streams[2], 1);
    return streams[s];
}

static void *pool_of(unsigned p) {
    if (!pools[0]) CALL("cuDeviceGetDefaultMemPool", (void **, int))(&pools[0], 0);
    return pools[p % 4];
}

static int make_pool(unsigned p, int kinds, size_t most) {
    struct { int type, kinds, place, id; void *security; size_t most; unsigned short usage, rdma; unsigned char rest[52]; } props;
    memset(&props, 0, sizeof props);
    props.type = 1, props.kinds = kinds, props.place = 1, props.most = most;
    pool_of(0);
    return CALL("cuMemPoolCreate", (void **, const void *))(&pools[p % 4], &props);
}

static void level(unsigned p) {
    static const int list[5] = {5, 7, 6, 8, 4};
    uint64_t values[5] = {0};
    int result = 0;
    for (int n = 0; n < 5 && !result; n++)
        result = CALL("cuMemPoolGetAttribute", (void *, int, void *))(pool_of(p), list[n], &values[n]);
    printf("level %llu %llu %llu %llu %llu %d\n", (unsigned long long)values[0], (unsigned long long)values[1],
           (unsigned long long)values[2], (unsigned long long)values[3], (unsigned long long)values[4], result);
}

static void of(int i) {
    void *handle = NULL, *its = NULL;
    int p = 9, (*ask)(void *, int, dptr) = (int (*)(void *, int, dptr))symbol("cuPointerGetAttribute");
    int result = ask(&handle, 17, slots[i]), second = ask(&its, 1, slots[i]);
    pool_of(0);
    for (int n = 3; n >= 0; n--) if (handle && handle == pools[n]) p = n;
    printf("of %d %d %d %d\n", p, its == context, result, second);
}

static int hold(unsigned s) {
    if (!word) TRY(CALL("cuMemAlloc_v2", (dptr *, size_t))(&word, 4));
    TRY(CALL("cuMemsetD32_v2", (dptr, unsigned, size_t))(word, 0, 1));
    TRY(CALL("cuStreamSynchronize", (void *))(NULL));
    return CALL("cuStreamWaitValue32_v2", (void *, dptr, unsigned, unsigned))(stream_of(s), word, 1, 0);
}

static int let_go(void) {
    return CALL("cuStreamWriteValue32_v2", (void *, dptr, unsigned, unsigned))(NULL, word, 1, 0);
}

static int store(unsigned p, int attribute, void *value) {
    return CALL("cuMemPoolSetAttribute", (void *, int, void *))(pool_of(p), attribute, value);
}

static struct { pthread_t thread; int slot, result; size_t size; void *in; } other;

static void *allocate_beside(void *unused) {
    other.result = current();
    if (!other.result)
        other.result = CALL("cuMemAllocAsync", (dptr *, size_t, void *))(&slots[other.slot], other.size, other.in);
    return unused;
}

static int beside(int i, size_t size, void *in) {
    other.slot = i, other.size = sizes[i] = size, other.in = in;
    TRY(pthread_create(&other.thread, NULL, allocate_beside, NULL));
    return pthread_setname_np(other.thread, "beside");
}

static int joined(void) {
    TRY(pthread_join(other.thread, NULL));
    return other.result;
}

static void *free_beside(void *unused) {
    other.result = current();
    if (!other.result) other.result = CALL("cuMemFree_v2", (dptr))(slots[other.slot]);
    return unused;
}

/* Frees a slot in two threads at once. */
static int twice(int i, int *own) {
    other.slot = i;
    TRY(pthread_create(&other.thread, NULL, free_beside, NULL));
    *own = CALL("cuMemFree_v2", (dptr))(slots[i]);
    return pthread_join(other.thread, NULL);
}

/* Whether it was one of the commands about pools. */
static int pool_command(const char *name, int i, const unsigned long long *value) {
    if (!strcmp(name, "pool")) printf("pool %d\n", make_pool(value[0], value[1], value[2]));
    else if (!strcmp(name, "async") || !strcmp(name, "from")) {
        sizes[i] = value[1];
        int result = *name == 'a' ? CALL("cuMemAllocAsync", (dptr *, size_t, void *))(&slots[i], value[1], stream_of(value[2]))
                                  : CALL("cuMemAllocFromPoolAsync", (dptr *, size_t, void *, void *))(&slots[i], value[1], pool_of(value[3]),
                                                                                                    stream_of(value[2]));
        firsts[i] = slots[i];
        printf("%s %d\n", name, result);
    } else if (!strcmp(name, "beside")) printf("beside %d\n", beside(i, value[1], stream_of(value[2])));
    else if (!strcmp(name, "twice")) {
        int own = 0, result = twice(i, &own), is_first = own < other.result;
        printf("twice %d %d\n", result ? result : is_first ? own : other.result, is_first ? other.result : own);
    } else if (!strcmp(name, "joined")) printf("joined %d\n", joined());
    else if (!strcmp(name, "level")) level(value[0]);
    else if (!strcmp(name, "put")) {
        uint64_t wanted = value[2];
        printf("put %d\n", store(value[0], value[1], &wanted));
    } else if (!strcmp(name, "rule")) {
        int wanted = value[2];
        printf("rule %d\n", store(value[0], value[1], &wanted));
    } else if (!strcmp(name, "trim")) printf("trim %d\n", CALL("cuMemPoolTrimTo", (void *, size_t))(pool_of(value[0]), value[1]));
    else if (!strcmp(name, "close")) printf("close %d\n", CALL("cuMemPoolDestroy", (void *))(pool_of(value[0])));
    else if (!strcmp(name, "use")) printf("use %d\n", CALL("cuDeviceSetMemPool", (int, void *))(0, pool_of(value[0])));
    else if (!strcmp(name, "of")) of(i);
    else if (!strcmp(name, "grant")) {
        struct { int place, id, flags; } access = {1, 1, value[1]};
        printf("grant %d\n", CALL("cuMemPoolSetAccess", (void *, const void *, size_t))(pool_of(value[0]), &access, 1));
    }
    else if (!strcmp(name, "sync")) printf("sync %d\n", CALL("cuStreamSynchronize", (void *))(stream_of(value[0])));
    else if (!strcmp(name, "hold")) printf("hold %d\n", hold(value[0]));
    else if (!strcmp(name, "release")) printf("release %d\n", let_go());
    else if (!strcmp(name, "meets")) {
        int j = value[1] % 16;
        printf("meets %d\n", slots[i] < slots[j] + sizes[j] && slots[j] < slots[i] + sizes[i]);
    }
    else return 0;
    return 1;
}

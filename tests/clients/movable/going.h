/* Streams and contexts that go while work is under way, and frees beside them. */

static void *made[8];
static struct { pthread_t thread; int slot; _Atomic int result; } freeing_thread, releasing_thread;
static uint64_t own_ns;

static void *free_apart(void *is_cancelled) {
    pthread_setname_np(pthread_self(), "frees");
    void *event;
    int result = current();
    /* It acts at the first cancellation point that the thread comes to. The driver has one in the thread's first event. */
    if (is_cancelled && !CALL("cuEventCreate", (void **, unsigned))(&event, 0)) pthread_cancel(pthread_self());
    freeing_thread.result = result ? result : CALL("cuMemFree_v2", (dptr))(slots[freeing_thread.slot]);
    pthread_testcancel();
    return NULL;
}

/* Frees a slot in a thread of its own, named frees, which may have been cancelled before. */
static int freeing(int i, int is_cancelled) {
    freeing_thread.slot = i, freeing_thread.result = -1;
    return pthread_create(&freeing_thread.thread, NULL, free_apart, is_cancelled ? &freeing_thread : NULL);
}

/* Whether that thread ended as cancelled. */
static int cancelled(void) {
    void *end;
    pthread_join(freeing_thread.thread, &end);
    return end == PTHREAD_CANCELED;
}

static void *release_apart(void *unused) {
    releasing_thread.result = CALL("cuDevicePrimaryCtxRelease_v2", (int))(0);
    return unused;
}

/* Retains the primary context once more, and releases it in a thread of its own. */
static int releasing(void) {
    void *again;
    releasing_thread.result = -1;
    TRY(CALL("cuDevicePrimaryCtxRetain", (void **, int))(&again, 0));
    return pthread_create(&releasing_thread.thread, NULL, release_apart, NULL);
}

static void *await_apart(void *unused) {
    int result = current();
    if (!result) result = CALL("cuStreamWaitValue32_v2_ptsz", (void *, dptr, unsigned, unsigned))(NULL, word, 1, 0);
    own_ns = result;
    return unused;
}

/* The own default stream of a thread, which then does nothing more, waits for the word. */
static int own_awaits(void) {
    pthread_t thread;
    TRY(pthread_create(&thread, NULL, await_apart, NULL));
    TRY(pthread_join(thread, NULL));
    return own_ns;
}

/* A word in memory, 0. */
static int fresh_word(void) {
    if (!word) TRY(CALL("cuMemAlloc_v2", (dptr *, size_t))(&word, 4));
    TRY(CALL("cuMemsetD32_v2", (dptr, unsigned, size_t))(word, 0, 1));
    return CALL("cuStreamSynchronize", (void *))(NULL);
}

static void *second_one;

/* A context beside the first, on the same device, with a stream that waits for the word. */
static int another(void) {
    void *in;
    TRY(CALL("cuCtxCreate_v2", (void **, unsigned, int))(&second_one, 0, 0));
    TRY(CALL("cuStreamCreate", (void **, unsigned))(&in, 1));
    TRY(CALL("cuStreamWaitValue32_v2", (void *, dptr, unsigned, unsigned))(in, word, 1, 0));
    return current();
}

static void *other_ones[3];

static void swap(void **one, void **other) {
    void *before = *one;
    *one = *other;
    *other = before;
}

/* The context, its stream and its kernel are those of the other one from now on. */
static int swaps(void) {
    int is_new = !other_ones[0];
    swap(&context, &other_ones[0]);
    swap(&stream, &other_ones[1]);
    swap(&kernel, &other_ones[2]);
    return is_new ? open_context(1) : current();
}

static void *destroy_apart(void *unused) {
    releasing_thread.result = CALL("cuCtxDestroy_v2", (void *))(second_one);
    return unused;
}

/* Destroys it in a thread of its own. */
static int no_other(void) {
    releasing_thread.result = -1;
    return pthread_create(&releasing_thread.thread, NULL, destroy_apart, NULL);
}

/* Whether it was one of the commands about that. */
static int going_command(const char *name, int i, const unsigned long long *value) {
    void **one = &made[value[0] % 8];
    if (!strcmp(name, "make")) printf("make %d\n", CALL("cuStreamCreate", (void **, unsigned))(one, value[1]));
    else if (!strcmp(name, "unmake")) printf("unmake %d\n", CALL("cuStreamDestroy_v2", (void *))(*one));
    else if (!strcmp(name, "word")) printf("word %d\n", fresh_word());
    else if (!strcmp(name, "awaits"))
        printf("awaits %d\n", CALL("cuStreamWaitValue32_v2", (void *, dptr, unsigned, unsigned))(*one, word, 1, 0));
    else if (!strcmp(name, "ownawaits")) printf("ownawaits %d\n", own_awaits());
    else if (!strcmp(name, "writes"))
        printf("writes %d\n", CALL("cuStreamWriteValue32_v2", (void *, dptr, unsigned, unsigned))(*one, word, 1, 0));
    else if (!strcmp(name, "captures")) printf("captures %d\n", CALL("cuStreamBeginCapture_v2", (void *, int))(*one, value[1]));
    else if (!strcmp(name, "ends")) {
        void *graph;
        printf("ends %d\n", CALL("cuStreamEndCapture", (void *, void **))(*one, &graph));
    } else if (!strcmp(name, "freeing")) printf("freeing %d\n", freeing(i, 0));
    else if (!strcmp(name, "cancelling")) printf("cancelling %d\n", freeing(i, 1));
    else if (!strcmp(name, "cancelled")) printf("cancelled %d\n", cancelled());
    else if (!strcmp(name, "freed")) printf("freed %d\n", freeing_thread.result);
    else if (!strcmp(name, "releasing")) printf("releasing %d\n", releasing());
    else if (!strcmp(name, "released")) printf("released %d\n", releasing_thread.result);
    else if (!strcmp(name, "another")) printf("another %d\n", another());
    else if (!strcmp(name, "swaps")) printf("swaps %d\n", swaps());
    else if (!strcmp(name, "noother")) printf("noother %d\n", no_other());
    else return 0;
    return 1;
}

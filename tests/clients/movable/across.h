/* Memsets and copies of slots while the context on device 1 is current. */

static void *far_stream;
static volatile uint32_t *far_words;

/* Makes it current, with a stream and two words of the host's: one that the stream can wait for, and one to copy to. */
static int far(void) {
    TRY(CALL("cuCtxSetCurrent", (void *))(other_context));
    if (!far_stream) TRY(CALL("cuStreamCreate", (void **, unsigned))(&far_stream, 1));
    if (!far_words) TRY(CALL("cuMemHostAlloc", (void *, size_t, unsigned))((void *)&far_words, 64, 1));
    return 0;
}

static int pull(int i, uint32_t value, int later, long *wrong) {
    own_pieces();
    memset(piece, ~value, sizes[i]);
    if (later) TRY(CALL("cuMemcpyDtoHAsync_v2", (void *, dptr, size_t, void *))(piece, slots[i], sizes[i], far_stream));
    else TRY(CALL("cuMemcpyDtoH_v2", (void *, dptr, size_t))(piece, slots[i], sizes[i]));
    for (size_t at = 0; at + 4 <= sizes[i]; at += 4) *wrong += memcmp(piece + at, &value, 4) != 0;
    return 0;
}

/* The caller may stand still meanwhile. */
static void sleeping_long(void *nothing) { (void)nothing; usleep(1000000); }

static int push(int i, uint32_t value, int later) {
    own_pieces();
    for (size_t at = 0; at + 4 <= sizes[i]; at += 4) memcpy(piece + at, &value, 4);
    if (later > 1) TRY(CALL("cuLaunchHostFunc", (void *, void (*)(void *), void *))(far_stream, later == 2 ? sleeping_long : sleeping, NULL));
    if (later == 3) {
        far_words[1] = value;
        TRY(CALL("cuMemcpyHtoDAsync_v2", (dptr, const void *, size_t, void *))(slots[i], (void *)&far_words[1], 4, far_stream));
        return CALL("cuStreamSynchronize", (void *))(far_stream);
    }
    if (!later) TRY(CALL("cuMemcpyHtoD_v2", (dptr, const void *, size_t))(slots[i], piece, sizes[i]));
    else TRY(CALL("cuMemcpyHtoDAsync_v2", (dptr, const void *, size_t, void *))(slots[i], piece, sizes[i], far_stream));
    return CALL("cuStreamSynchronize", (void *))(later ? far_stream : NULL);
}

static int stamp(int i, uint32_t value, int how) {
    size_t words = sizes[i] / 4;
    if (how == 0) TRY(CALL("cuMemsetD32_v2", (dptr, unsigned, size_t))(slots[i], value, words));
    else if (how == 1) TRY(CALL("cuMemsetD32Async", (dptr, unsigned, size_t, void *))(slots[i], value, words, far_stream));
    else TRY(CALL("cuMemsetD2D32_v2", (dptr, size_t, unsigned, size_t, size_t))(slots[i], 64, value, 16, words / 16));
    return CALL("cuStreamSynchronize", (void *))(how == 1 ? far_stream : NULL);
}

struct rows {
    size_t from_x, from_y;
    int from_type;
    const void *from_host;
    dptr from;
    void *from_array;
    size_t from_pitch, to_x, to_y;
    int to_type;
    void *to_host;
    dptr to;
    void *to_array;
    size_t to_pitch, width, height;
};

static int carry(int to, int from, int how) {
    struct rows rows = {.from_type = 2, .from = slots[from], .from_pitch = 64, .to_type = 2, .to = slots[to], .to_pitch = 64,
                        .width = 64, .height = sizes[to] / 64};
    size_t bytes = sizes[to];
    if (how == 0) TRY(CALL("cuMemcpyDtoD_v2", (dptr, dptr, size_t))(slots[to], slots[from], bytes));
    else if (how == 1) TRY(CALL("cuMemcpyDtoDAsync_v2", (dptr, dptr, size_t, void *))(slots[to], slots[from], bytes, far_stream));
    else if (how == 2) TRY(CALL("cuMemcpy", (dptr, dptr, size_t))(slots[to], slots[from], bytes));
    else if (how == 3) TRY(CALL("cuMemcpy2DUnaligned_v2", (void *))(&rows));
    else TRY(CALL("cuMemcpy2DAsync_v2", (void *, void *))(&rows, far_stream));
    return CALL("cuStreamSynchronize", (void *))(how == 1 || how == 4 ? far_stream : NULL);
}

/* The stream waits for the first word, sets the slot, and copies its first word to the second one. */
static int queue(int i, uint32_t value) {
    far_words[0] = far_words[1] = 0;
    TRY(CALL("cuStreamWaitValue32_v2", (void *, dptr, unsigned, unsigned))(far_stream, (dptr)(uintptr_t)&far_words[0], 1, 0));
    TRY(CALL("cuMemsetD32Async", (dptr, unsigned, size_t, void *))(slots[i], value, sizes[i] / 4, far_stream));
    return CALL("cuMemcpyDtoHAsync_v2", (void *, dptr, size_t, void *))((void *)&far_words[1], slots[i], 4, far_stream);
}

static int across_command(const char *name, int i, const unsigned long long *value) {
    static const char *const names[] = {"pull", "push", "stamp", "carry", "queue", "status", "goes", "recorded", "ended", NULL};
    const char *const *one = names;
    void *graph = NULL;
    long wrong = 0;
    while (*one && strcmp(name, *one)) one++;
    if (!*one) return 0;
    int result = far();
    if (result) printf("%s %d\n", name, result);
    else if (!strcmp(name, "pull")) {
        result = pull(i, value[1], value[2], &wrong);
        printf("pull %ld %d\n", wrong, result);
    } else if (!strcmp(name, "push")) printf("push %d\n", push(i, value[1], value[2]));
    else if (!strcmp(name, "stamp")) printf("stamp %d\n", stamp(i, value[1], value[2]));
    else if (!strcmp(name, "carry")) printf("carry %d\n", carry(i, value[1] % 16, value[2]));
    else if (!strcmp(name, "queue")) printf("queue %d\n", queue(i, value[1]));
    else if (!strcmp(name, "status")) printf("status %d\n", CALL("cuStreamQuery", (void *))(far_stream));
    else if (!strcmp(name, "goes")) {
        far_words[0] = 1;
        result = CALL("cuStreamSynchronize", (void *))(far_stream);
        printf("goes %u %d\n", far_words[1], result);
    } else if (!strcmp(name, "ended")) {
        printf("ended %d\n", CALL("cuStreamDestroy_v2", (void *))(far_stream));
        far_stream = NULL;
    } else {
        result = CALL("cuStreamBeginCapture_v2", (void *, int))(far_stream, 2);
        if (!result) result = CALL("cuMemcpyDtoDAsync_v2", (dptr, dptr, size_t, void *))(slots[i], slots[value[1] % 16], 4, far_stream);
        printf("recorded %d %d\n", result, CALL("cuStreamEndCapture", (void *, void **))(far_stream, &graph));
    }
    current();
    return 1;
}

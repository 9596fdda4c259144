/* Modules, libraries, kernels and launches. */
static int module_load(struct thread *t) {
    unsigned to = UNUSED(t, module);
    if (t->module[to]) return EMPTY;
    return CALL("cuModuleLoadData", (void **, const void *))(&t->module[to], rarely(t) ? NULL : "any image");
}
static int module_unload(struct thread *t) {
    unsigned of = USED(t, module);
    int result = CALL("cuModuleUnload", (void *))(t->module[of]);
    if (!result) t->module[of] = t->function[of] = NULL;
    return result;
}
static int get_function(struct thread *t) {
    unsigned of = USED(t, module);
    if (t->function[of]) return EMPTY;
    return CALL("cuModuleGetFunction", (void **, void *, const char *))(&t->function[of], t->module[of], "spin");
}
static int launch(struct thread *t) {
    u64 time = 1000 * (1 + below(t, 50));
    void *parameters[] = {&time}, *function = some(t, t->function);
    unsigned grid = rarely(t) ? 0 : 1;
    return CALL("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))(
        function, grid, 1, 1, rarely(t) ? 4096 : 32, 1, 1, 0, some_stream(t), parameters, NULL);
}
static int occupancy(struct thread *t) {
    int blocks = 0, result = CALL("cuOccupancyMaxActiveBlocksPerMultiprocessor", (int *, void *, int, size_t))(&blocks, some(t, t->function), 256, 0);
    if (!result) snprintf(t->extra, sizeof t->extra, "%d", blocks);
    return result;
}

static int get_fill(struct thread *t, void **function) {
    unsigned of = USED(t, module);
    return CALL("cuModuleGetFunction", (void **, void *, const char *))(function, t->module[of], "fill");
}
/* A kernel writes a buffer, whose content is read. */
static int launch_fill(struct thread *t) {
    unsigned of = USED(t, buffer), value = below(t, 1000);
    void *function = NULL, *stream = stream_of(t, of);
    if (!t->buffer[of] || t->bytes[of] < 4096 || captures(stream) || get_fill(t, &function)) return EMPTY;
    u64 count = 1024;
    void *parameters[] = {&t->buffer[of], &count, &value};
    unsigned words[1024] = {0};
    int result = CALL("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))(
        function, 8, 1, 1, 128, 1, 1, rarely(t) ? 1 << 20 : 0, stream, parameters, NULL);
    t->known[of] = 0;
    if (!result) result = CALL("cuMemcpyDtoHAsync_v2", (void *, dptr, size_t, void *))(words, t->buffer[of], sizeof words, stream);
    if (!result) result = CALL("cuStreamSynchronize", (void *))(stream);
    if (!result) snprintf(t->extra, sizeof t->extra, "%016llx", (dptr)hash((unsigned char *)words, sizeof words));
    return result;
}
static int launch_ex(struct thread *t) {
    u64 time = 1000 * (1 + below(t, 20));
    void *parameters[] = {&time}, *function = some(t, t->function);
    struct config config = {{1, 1, rarely(t) ? 0 : 1}, {32, 1, 1}, 0, some_stream(t), NULL, rarely(t) ? 1 : 0};
    return CALL("cuLaunchKernelEx", (const struct config *, void *, void **, void **))(rarely(t) ? NULL : &config, function, parameters, NULL);
}
static int launch_cooperative(struct thread *t) {
    u64 time = 1000 * (1 + below(t, 20));
    void *parameters[] = {&time}, *function = some(t, t->function);
    unsigned grid = rarely(t) ? 1 << 30 : 4;
    return CALL("cuLaunchCooperativeKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **))(
        function, grid, 1, 1, 32, 1, 1, 0, some_stream(t), parameters);
}
/* Many in a row: deep queues are what caps and turns look at. */
static int launch_many(struct thread *t) {
    u64 time = 1000 * (1 + below(t, 10));
    unsigned count = 1 + below(t, 60), of = slot(t);
    void *parameters[] = {&time}, *function = t->function[USED(t, function)], *stream = stream_of(t, of);
    int result = 0;
    for (unsigned i = 0; i < count && !result; i++)
        result = CALL("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))(
            function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL);
    return result;
}
static int function_told(struct thread *t) {
    void *function = some(t, t->function), *module = NULL;
    int value = -1, which = rarely(t) ? 99 : (int)below(t, 10), result = CALL("cuFuncGetAttribute", (int *, int, void *))(&value, which, function);
    int of = CALL("cuFuncGetModule", (void **, void *))(&module, function), found = 0;
    for (int i = 0; i < SLOTS; i++) found |= module && module == t->module[i];
    snprintf(t->extra, sizeof t->extra, "%d %d %d", result ? 0 : value, of, found);
    return result;
}
static int function_set(struct thread *t) {
    return CALL("cuFuncSetAttribute", (void *, int, int))(some(t, t->function), rarely(t) ? 99 : 8 + (int)below(t, 2), (int)below(t, 100));
}
static int module_global(struct thread *t) {
    dptr at = 0;
    size_t bytes = 0;
    return CALL("cuModuleGetGlobal_v2", (dptr *, size_t *, void *, const char *))(&at, &bytes, t->module[USED(t, module)], "nothing");
}
static int library_load(struct thread *t) {
    unsigned to = UNUSED(t, library);
    if (t->library[to]) return EMPTY;
    return CALL("cuLibraryLoadData", (void **, const void *, int *, void **, unsigned, int *, void **, unsigned))(
        &t->library[to], rarely(t) ? NULL : "any image", NULL, NULL, 0, NULL, NULL, 0);
}
static int library_unload(struct thread *t) {
    unsigned of = USED(t, library);
    int result = CALL("cuLibraryUnload", (void *))(t->library[of]);
    if (!result) t->library[of] = NULL;
    return result;
}
static int library_kernel(struct thread *t) {
    void *kernel = NULL, *function = NULL, *module = NULL, *library = t->library[USED(t, library)];
    u64 time = 1000;
    void *parameters[] = {&time}, *stream = some_stream(t);
    int result = CALL("cuLibraryGetKernel", (void **, void *, const char *))(&kernel, library, "spin");
    if (result) return result;
    int loaded = CALL("cuLibraryGetModule", (void **, void *))(&module, library), got = CALL("cuKernelGetFunction", (void **, void *))(&function, kernel);
    result = CALL("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))(
        below(t, 2) ? kernel : function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL);
    if (result == 0) settled(stream);
    snprintf(t->extra, sizeof t->extra, "%d %d", loaded, got);
    return result;
}
static int potential_block(struct thread *t) {
    int grid = 0, block = 0;
    int result = CALL("cuOccupancyMaxPotentialBlockSize", (int *, int *, void *, size_t (*)(int), size_t, int))(&grid, &block, some(t, t->function), NULL, 0, 0);
    if (!result) snprintf(t->extra, sizeof t->extra, "%d %d", grid, block);
    return result;
}
/* A kernel writes where nothing is: the context is lost, and every later call says so. */
static int fault(struct thread *t) {
    void *function = NULL;
    u64 count = 16;
    dptr nowhere = 64;
    unsigned value = 1;
    void *parameters[] = {&nowhere, &count, &value};
    if (below(t, 3) || get_fill(t, &function)) return EMPTY;
    int result = CALL("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))(
        function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL);
    int synced = CALL("cuCtxSynchronize", (void))();
    snprintf(t->extra, sizeof t->extra, "%d", synced);
    return result;
}

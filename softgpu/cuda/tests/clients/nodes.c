/* Graph nodes and queued work whose memory is mapped anew, or no more, before they run. */
#include "cu.h"
#include <sys/wait.h>

enum { PAGE = 2 * MIB, PART = 4096 };
/* The parts of the page: a source, and what each node writes or waits for. */
enum { SOURCE, COPIED, FILLED, ROWS, ARRIVED, WRITTEN, AWAITED, OWN_COPIED, OWN_FILLED, OWN_WRITTEN, PARTS };
enum { ROW = 32, PITCH = 64, HEIGHT = 16 };

struct place { size_t x, y, z, level; int kind; const void *host; dptr at; void *array, *reserved; size_t pitch, height; };
struct box { struct place from, to; size_t width, height, depth; };
struct fill { dptr at; size_t pitch; unsigned value, element; size_t width, height; };
union op { struct { int kind; dptr at; unsigned long long value; unsigned flags; dptr alias; } write; unsigned long long words[6]; };
struct ops { handle context; unsigned count; union op *all; unsigned flags; };

result cuStreamBeginCapture_v2(handle, int), cuStreamEndCapture(handle, handle *), cuGraphInstantiateWithFlags(handle *, handle, unsigned long long);
result cuGraphLaunch(handle, handle), cuGraphCreate(handle *, unsigned), cuMemcpyDtoDAsync_v2(dptr, dptr, size_t, handle);
result cuMemcpy2DAsync_v2(const struct copy2d *, handle), cuStreamWriteValue32_v2(handle, dptr, unsigned, unsigned);
result cuStreamWaitValue32_v2(handle, dptr, unsigned, unsigned);
result cuGraphAddMemcpyNode(handle *, handle, const handle *, size_t, const struct box *, handle);
result cuGraphAddMemsetNode(handle *, handle, const handle *, size_t, const struct fill *, handle);
result cuGraphAddBatchMemOpNode(handle *, handle, const handle *, size_t, const struct ops *);

static handle context, stream;
static unsigned char *in, *out;
static dptr base;

static dptr physical(void) {
    struct alloc_prop want = {.type = 1, .location = {1, 0}};
    dptr made;
    DO(cuMemCreate(&made, PAGE, &want, 0));
    return made;
}

static void map(dptr at, dptr memory) {
    struct access access = {{1, 0}, 3};
    DO(cuMemMap(at, PAGE, 0, memory, 0));
    DO(cuMemSetAccess(at, PAGE, &access, 1));
}

static dptr part(int n) { return base + (dptr)n * PART; }

static void begin(void) {
    context = start();
    DO(cuStreamCreate(&stream, 1));
    DO(cuMemHostAlloc((void **)&in, PART, 0));
    DO(cuMemHostAlloc((void **)&out, PART, 0));
    DO(cuMemAddressReserve(&base, PAGE, 0, 0, 0));
    memset(in, 9, PART);
}

/* What writes or reads one part, submitted to a stream. */
static void submit(int n) {
    struct copy2d rows = {.st = 2, .sd = part(SOURCE), .sp = PITCH, .dt = 2, .dd = part(ROWS), .dp = PITCH, .width = ROW, .height = HEIGHT};
    switch (n) {
    case SOURCE: DO(cuMemcpyDtoHAsync_v2(out, part(SOURCE), PART, stream)); break;
    case COPIED: DO(cuMemcpyDtoDAsync_v2(part(COPIED), part(SOURCE), PART, stream)); break;
    case FILLED: DO(cuMemsetD8Async(part(FILLED), 5, PART, stream)); break;
    case ROWS: DO(cuMemcpy2DAsync_v2(&rows, stream)); break;
    case ARRIVED: DO(cuMemcpyHtoDAsync_v2(part(ARRIVED), in, PART, stream)); break;
    case WRITTEN: DO(cuStreamWriteValue32_v2(stream, part(WRITTEN), 77, 0)); break;
    default: DO(cuStreamWaitValue32_v2(stream, part(AWAITED), 3, 1)); break;
    }
}

/* The same as a node that is added to a graph. */
static void add(handle graph, int n) {
    struct box box = {.from = {.kind = 2, .at = part(SOURCE)}, .to = {.kind = 2, .at = part(OWN_COPIED)}, .width = PART, .height = 1, .depth = 1};
    struct fill fill = {part(OWN_FILLED), 0, 6, 1, PART, 1};
    union op op = {.write = {2, part(OWN_WRITTEN), 78, 0, 0}};
    struct ops ops = {context, 1, &op, 0};
    handle node;
    if (n == OWN_COPIED) DO(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &box, context));
    else if (n == OWN_FILLED) DO(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, context));
    else DO(cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &ops));
}

/* An executable graph of the parts from `first` to `last`. */
static handle nodes(int first, int last) {
    handle graph, exec;
    DO(cuStreamBeginCapture_v2(stream, 2));
    for (int n = first; n <= last && n < OWN_COPIED; n++) submit(n);
    DO(cuStreamEndCapture(stream, &graph));
    for (int n = first > OWN_COPIED ? first : OWN_COPIED; n <= last; n++) add(graph, n);
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

/* The page as it is before the nodes run: a source, and the awaited value. */
static void ready(unsigned seed) {
    unsigned char *source = made(PART, seed);
    DO(cuMemsetD8_v2(base, 0, PAGE));
    DO(cuMemcpyHtoD_v2(part(SOURCE), source, PART));
    DO(cuMemsetD32_v2(part(AWAITED), 3, 1));
    DO(cuCtxSynchronize()); /* a copy of pageable memory may arrive after the call */
    free(source);
    memset(out, 0, PART);
}

/* Whether memory is as the nodes leave it that have read the source of that seed. */
static int left(dptr at, unsigned seed) {
    static unsigned char seen[PARTS * PART];
    unsigned char *source = made(PART, seed);
    int wrong = 0;
    DO(cuMemcpyDtoH_v2(seen, at, sizeof seen));
    for (int row = 0; row < HEIGHT; row++) wrong |= !!memcmp(seen + ROWS * PART + row * PITCH, source + row * PITCH, ROW);
    wrong |= !!memcmp(seen + COPIED * PART, source, PART) << 1 | !!memcmp(seen + OWN_COPIED * PART, source, PART) << 2;
    wrong |= !!memcmp(seen + ARRIVED * PART, in, PART) << 3;
    wrong |= (seen[FILLED * PART] != 5 || seen[FILLED * PART + PART - 1] != 5) << 4;
    wrong |= (seen[OWN_FILLED * PART] != 6 || seen[OWN_FILLED * PART + PART - 1] != 6) << 5;
    wrong |= (*(unsigned *)(seen + WRITTEN * PART) != 77) << 6;
    wrong |= (*(unsigned *)(seen + OWN_WRITTEN * PART) != 78) << 7;
    free(source);
    if (wrong) fprintf(stderr, "wrong, as bits: %x\n", wrong);
    return !wrong;
}

static void remapped(void) {
    begin();
    dptr first = physical(), second, before;
    map(base, first);
    handle exec = nodes(SOURCE, OWN_WRITTEN);
    ready(1);
    DO(cuGraphLaunch(exec, stream));
    DO(cuStreamSynchronize(stream));
    TRUE(left(base, 1) && pattern(out, PART, 1));
    DO(cuMemUnmap(base, PAGE));
    second = physical();
    map(base, second);
    DO(cuMemAddressReserve(&before, PAGE, 0, 0, 0));
    map(before, first);
    DO(cuMemsetD32_v2(before + AWAITED * PART, 0, 1)); /* a wait for the value there would not end */
    ready(2);
    DO(cuGraphLaunch(exec, stream));
    DO(cuStreamSynchronize(stream));
    TRUE(left(base, 2) && pattern(out, PART, 2));
    TRUE(left(before, 1)); /* where nothing was written any more */
}

/* Runs `body` for each part in a process of its own, as an error is the end of its context. */
static void for_each_part(void (*body)(int)) {
    for (int n = SOURCE; n < PARTS; n++) {
        int status;
        if (!fork()) body(n), exit(0);
        wait(&status);
        if (status) fprintf(stderr, "part %d\n", n);
        TRUE(!status);
    }
}

/* What the stream does ends in an error, and so does all that follows. */
static void illegal(void) {
    dptr more;
    IS(ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    IS(ILLEGAL_ADDRESS, cuMemAlloc_v2(&more, PART));
}

static void node_without_memory(int n) {
    begin();
    map(base, physical());
    ready(1);
    handle exec = nodes(n, n);
    DO(cuGraphLaunch(exec, stream));
    DO(cuStreamSynchronize(stream)); /* its opposite */
    DO(cuMemUnmap(base, PAGE));
    DO(cuGraphLaunch(exec, stream));
    illegal();
}

static void unmapped(void) { for_each_part(node_without_memory); }

/* Work of a stream that waits for the host until its memory is another. */
static void work_across(int n, int again) {
    static int go;
    begin();
    dptr first = physical();
    map(base, first);
    ready(1);
    DO(cuLaunchHostFunc(stream, wait_until_set, &go));
    submit(n);
    DO(cuMemUnmap(base, PAGE));
    if (again) {
        map(base, physical());
        handle other;
        DO(cuStreamCreate(&other, 1));
        DO(cuMemsetD8Async(part(SOURCE), 4, PART, other));
        DO(cuMemsetD32Async(part(AWAITED), 3, 1, other));
        DO(cuStreamSynchronize(other));
    }
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    if (!again) return illegal();
    DO(cuStreamSynchronize(stream));
    unsigned char seen[PART];
    DO(cuMemcpyDtoH_v2(seen, part(n), PART));
    static const unsigned char first_byte[] = {4, 4, 5, 4, 9, 77, 3};
    TRUE(seen[0] == first_byte[n]);
    if (n == SOURCE) TRUE(out[0] == 4 && out[PART - 1] == 4);
}

static void queued_then_remapped(int n) { if (n < OWN_COPIED) work_across(n, 1); }
static void queued_then_unmapped(int n) { if (n < OWN_COPIED) work_across(n, 0); }
static void queued(void) { for_each_part(queued_then_remapped), for_each_part(queued_then_unmapped); }

TESTS(T(remapped), T(unmapped), T(queued))

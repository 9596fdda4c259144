/* What memory that moves rests on, asked of the bare driver: what the calls cost that map memory at an address, how fast a
 * kernel reads memory mapped so, what a program sees of an address whose memory was taken and given back, and how long the
 * driver's own checkpoint of a process takes. JSON on standard output; null where the driver has no such call or refuses it.
 *
 *   mapped BYTES      how much the kernel reads, and the checkpointed process holds: a multiple of 2 MiB */
#include "driver.h"

#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20, ROUNDS = 15, STEP = 64 << 10, MOST = 64 };
enum { BUFFER_ID = 7, CONTEXT = 1, ON_DEVICE = 1, READ_WRITE = 3, PINNED = 1 }; /* cuda.h */

struct location { int type, id; };
struct property { int type, handles; struct location where; void *windows; unsigned char flags[8]; };
struct access { struct location where; int flags; };

static const struct property on_device = {.type = PINNED, .where = {ON_DEVICE, 0}};
static const struct access both_ways = {{ON_DEVICE, 0}, READ_WRITE};

static const char chase_ptx[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry chase(.param .u64 from, .param .u64 to, .param .u32 steps) {\n"
    ".reg .u64 %a<4>;\n.reg .u32 %n<2>;\n.reg .pred %p<2>;\n"
    "ld.param.u64 %a1, [from];\nld.param.u64 %a2, [to];\nld.param.u32 %n1, [steps];\n"
    "again:\nld.global.u64 %a1, [%a1];\nsub.u32 %n1, %n1, 1;\nsetp.ne.u32 %p1, %n1, 0;\n@%p1 bra again;\n"
    "st.global.u64 [%a2], %a1;\nret;\n}\n";

static double microseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static int by_size(const void *one, const void *other) {
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

static double median(double *figures) {
    qsort(figures, ROUNDS, sizeof *figures, by_size);
    return figures[ROUNDS / 2];
}

static unsigned long long create(size_t bytes) {
    unsigned long long handle;
    CU("cuMemCreate", (unsigned long long *, size_t, const struct property *, unsigned long long), (&handle, bytes, &on_device, 0));
    return handle;
}

static void map(dptr at, size_t bytes, unsigned long long handle) {
    CU("cuMemMap", (dptr, size_t, size_t, unsigned long long, unsigned long long), (at, bytes, 0, handle, 0));
}

static void allow(dptr at, size_t bytes) {
    CU("cuMemSetAccess", (dptr, size_t, const struct access *, size_t), (at, bytes, &both_ways, 1));
}

static void unmap(dptr at, size_t bytes) { CU("cuMemUnmap", (dptr, size_t), (at, bytes)); }
static void give_back(unsigned long long handle) { CU("cuMemRelease", (unsigned long long), (handle)); }

static dptr reserve(size_t bytes) {
    dptr at;
    CU("cuMemAddressReserve", (dptr *, size_t, size_t, dptr, unsigned long long), (&at, bytes, 0, 0, 0));
    return at;
}

/* Each call of a move, for one piece of this size. */
static void calls(size_t bytes, const char *behind) {
    static const char *const names[] = {"create", "map", "allow", "unmap", "release"};
    double took[5][ROUNDS];
    dptr at = reserve(bytes);
    for (int round = 0; round < ROUNDS; round++) {
        double times[6] = {microseconds()};
        unsigned long long handle = create(bytes);
        times[1] = microseconds(), map(at, bytes, handle);
        times[2] = microseconds(), allow(at, bytes);
        times[3] = microseconds(), unmap(at, bytes);
        times[4] = microseconds(), give_back(handle);
        times[5] = microseconds();
        for (int call = 0; call < 5; call++) took[call][round] = times[call + 1] - times[call];
    }
    CU("cuMemAddressFree", (dptr, size_t), (at, bytes));
    printf("\"%zu MiB\": {", bytes / MIB);
    for (int call = 0; call < 5; call++) printf("\"%s\": %.1f%s", names[call], median(took[call]), call < 4 ? ", " : "}");
    printf("%s", behind);
}

/* Nanoseconds a step for one thread that follows a chain through all of this memory. */
static double chase(dptr memory, size_t bytes, void *function) {
    size_t places = bytes / STEP;
    size_t *order = malloc(places * sizeof *order);
    for (size_t i = 0; i < places; i++) order[i] = i;
    srand(1);
    for (size_t i = places - 1; i > 0; i--) {
        size_t other = (size_t)rand() % i, kept = order[i];
        order[i] = order[other], order[other] = kept;
    }
    for (size_t i = 0; i < places; i++) {
        dptr next = memory + order[i] * STEP;
        CU("cuMemcpyHtoD_v2", (dptr, const void *, size_t), (memory + i * STEP, &next, sizeof next));
    }
    free(order);
    unsigned steps = (unsigned)places * 4;
    dptr to = memory + 8;
    void *arguments[] = {&memory, &to, &steps}, *begin, *end;
    float milliseconds;
    CU("cuEventCreate", (void **, unsigned), (&begin, 0));
    CU("cuEventCreate", (void **, unsigned), (&end, 0));
    for (int warm = 0; warm < 2; warm++) {
        CU("cuEventRecord", (void *, void *), (begin, NULL));
        CU("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
           (function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
        CU("cuEventRecord", (void *, void *), (end, NULL));
        CU("cuEventSynchronize", (void *), (end));
    }
    CU("cuEventElapsedTime", (float *, void *, void *), (&milliseconds, begin, end));
    return milliseconds * 1e6 / steps;
}

static void kernels(size_t bytes) {
    void *module, *function;
    CU("cuModuleLoadData", (void **, const void *), (&module, chase_ptx));
    CU("cuModuleGetFunction", (void **, void *, const char *), (&function, module, "chase"));
    dptr plain;
    CU("cuMemAlloc_v2", (dptr *, size_t), (&plain, bytes));
    printf("\"read_ns\": {\"plain\": %.1f, ", chase(plain, bytes, function));
    CU("cuMemFree_v2", (dptr), (plain));
    size_t piece = bytes < MOST * (size_t)MIB ? bytes : MOST * (size_t)MIB;
    dptr at = reserve(bytes);
    for (size_t done = 0; done < bytes; done += piece) {
        size_t length = bytes - done < piece ? bytes - done : piece;
        unsigned long long handle = create(length);
        map(at + done, length, handle);
        give_back(handle);
    }
    allow(at, bytes);
    printf("\"mapped\": %.1f}, ", chase(at, bytes, function));
    for (size_t done = 0; done < bytes; done += piece) unmap(at + done, bytes - done < piece ? bytes - done : piece);
    CU("cuMemAddressFree", (dptr, size_t), (at, bytes));
}

/* Whether the driver answers. */
static int attribute(int number, dptr of, unsigned long long *value) {
    *value = 0;
    return !((int (*)(void *, int, dptr))driver_symbol("cuPointerGetAttribute"))(value, number, of);
}

/* Prints whether an attribute stays the same across a remap; null where the driver does not tell it of mapped memory. */
static void stays(const char *name, int number, dptr of, int was_told, unsigned long long before, const char *end) {
    unsigned long long now;
    int is_told = attribute(number, of, &now) && was_told;
    printf("\"%s\": %s%s", name, !is_told ? "null" : now == before ? "true" : "false", end);
}

static size_t available(void) {
    size_t free_bytes, all;
    CU("cuMemGetInfo_v2", (size_t *, size_t *), (&free_bytes, &all));
    return free_bytes;
}

struct watched { unsigned long long all, free, used; }; /* nvmlMemory_t */

/* What another process's monitor sees as free on device 0; 0 where there is no NVML. */
static size_t watched(void) {
    static int (*ask)(void *, struct watched *);
    static void *watch;
    struct watched memory = {0};
    if (!ask) {
        void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
        int (*begin)(void) = nvml ? (int (*)(void))dlsym(nvml, "nvmlInit_v2") : NULL;
        int (*first)(unsigned, void **) = nvml ? (int (*)(unsigned, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2") : NULL;
        if (!begin || !first || begin() || first(0, &watch)) return 0;
        ask = (int (*)(void *, struct watched *))dlsym(nvml, "nvmlDeviceGetMemoryInfo");
    }
    return ask && !ask(watch, &memory) ? memory.free : 0;
}

/* Prints after how many microseconds this much more is seen as free; null if it is not within a second. */
static void until_free(const char *name, size_t (*look)(void), size_t before, size_t bytes, double from) {
    double now;
    do {
        int is_there = look() >= before + bytes;
        now = microseconds();
        if (is_there) {
            printf("\"%s\": %.0f, ", name, now - from);
            return;
        }
    } while (before && now < from + 1e6);
    printf("\"%s\": null, ", name);
}

/* What a program that asks about its address sees before and after its memory was away, and when others can have it. */
static void remapped(void) {
    size_t bytes = MOST * (size_t)MIB;
    dptr at = reserve(bytes);
    unsigned long long handle = create(bytes);
    map(at, bytes, handle), allow(at, bytes), give_back(handle);
    unsigned long long number, context;
    int has_number = attribute(BUFFER_ID, at, &number), has_context = attribute(CONTEXT, at, &context);
    size_t before = available(), before_by_nvml = watched();
    double from = microseconds();
    unmap(at, bytes);
    printf("\"across_a_remap\": {");
    until_free("free_us", available, before, bytes, from);
    until_free("free_us_by_nvml", watched, before_by_nvml, bytes, from);
    handle = create(bytes);
    map(at, bytes, handle), allow(at, bytes), give_back(handle);
    stays("same_buffer_id", BUFFER_ID, at, has_number, number, ", ");
    stays("same_context", CONTEXT, at, has_context, context, "}, ");
    unmap(at, bytes);
    CU("cuMemAddressFree", (dptr, size_t), (at, bytes));
}

/* A process that makes a context and takes `bytes`, says so, and ends when told. */
static pid_t start_other(size_t bytes, int to[2], int from[2]) {
    if (pipe(to) || pipe(from)) exit(1);
    pid_t other = fork();
    if (other) return other;
    char byte = 0;
    dptr memory;
    close(to[1]);
    if (read(to[0], &byte, 1) != 1) _exit(1);
    make_context();
    CU("cuMemAlloc_v2", (dptr *, size_t), (&memory, bytes));
    CU("cuMemsetD8_v2", (dptr, unsigned char, size_t), (memory, 1, bytes));
    CU("cuCtxSynchronize", (void), ());
    if (write(from[1], &byte, 1) != 1) _exit(1);
    _exit(read(to[0], &byte, 1) > 0);
}

/* Milliseconds of each step of the driver's own checkpoint of another process. */
static void checkpoint(pid_t other) {
    static const char *const names[] = {"Lock", "Checkpoint", "Restore", "Unlock"};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    double took[4];
    for (int step = 0; step < 4; step++) {
        char name[40];
        snprintf(name, sizeof name, "cuCheckpointProcess%s", names[step]);
        int (*call)(int, void *) = driver ? (int (*)(int, void *))dlsym(driver, name) : NULL;
        double began = microseconds();
        int result = call ? call(other, NULL) : -1;
        took[step] = (microseconds() - began) / 1e3;
        if (result) {
            fprintf(stderr, "%s: %d\n", name, result);
            printf("\"checkpoint_ms\": null");
            return;
        }
    }
    printf("\"checkpoint_ms\": {\"lock\": %.1f, \"out\": %.1f, \"back\": %.1f, \"unlock\": %.1f}", took[0], took[1], took[2], took[3]);
}

int main(int count, char **words) {
    size_t bytes = count > 1 ? strtoull(words[1], NULL, 10) : 0;
    if (!bytes || bytes % (2 * MIB)) return 2;
    int to[2], from[2];
    char byte = 0;
    pid_t other = start_other(bytes, to, from);
    close(to[0]), close(from[1]);
    make_context();
    printf("{\"call_us\": {");
    calls(2 * MIB, ", "), calls(16 * MIB, ", "), calls(64 * MIB, ", "), calls(256 * MIB, "}, ");
    kernels(bytes);
    remapped();
    if (write(to[1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1) return 1;
    checkpoint(other);
    close(to[1]);
    waitpid(other, NULL, 0);
    printf("}\n");
    return 0;
}

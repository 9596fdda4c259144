/* Host memory for what moved away, by the bare driver: for each kind of pages how fast the kernel fills them and the driver
 * registers them, how fast copies are from and to the device and both at once (GB/s), and how much of it the memory cgroup of
 * this process is charged. JSON on standard output; null where this machine has no such pages or the driver refuses them.
 *
 *   pinned BYTES      of each kind, one after the other: a multiple of 2 MiB */
#define _GNU_SOURCE
#include "driver.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20, ROUNDS = 3, PINNED = 1, ON_DEVICE = 1, HOST_NUMA = 3, READ_WRITE = 3 }; /* cuda.h */

struct location { int type, id; };
struct property { int type, handles; struct location where; void *windows; unsigned char flags[8]; };
struct access { struct location where; int flags; };

static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* What this process's memory cgroup is charged; -1 where it has none that says so. */
static long long charged(void) {
    static char line[4096], path[4200];
    FILE *file = fopen("/proc/self/cgroup", "r");
    long long bytes = -1;
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "0::", 3)) {
            line[strcspn(line, "\n")] = 0;
            snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.current", line + 3);
        }
    if (file) fclose(file);
    file = path[0] ? fopen(path, "r") : NULL;
    if (file && fscanf(file, "%lld", &bytes) != 1) bytes = -1;
    if (file) fclose(file);
    return bytes;
}

static dptr device[2];
static void *stream[2];

static void wait_all(void) { CU("cuCtxSynchronize", (void), ()); }

/* GB/s of copies between this host memory and the device: to it, from it, and both at once with a half each. */
static void copies(char *host, size_t bytes) {
    size_t half = bytes / 2;
    double best[3] = {0};
    for (int round = 0; round < ROUNDS; round++)
        for (int way = 0; way < 3; way++) {
            double began = seconds();
            if (way != 1)
                CU("cuMemcpyHtoDAsync_v2", (dptr, const void *, size_t, void *), (device[0], host, half, stream[0]));
            if (way != 0)
                CU("cuMemcpyDtoHAsync_v2", (void *, dptr, size_t, void *), (host + half, device[1], half, stream[1]));
            wait_all();
            double rate = (way == 2 ? 2 : 1) * half / (seconds() - began) / 1e9;
            if (rate > best[way]) best[way] = rate;
        }
    printf("\"to_device\": %.2f, \"from_device\": %.2f, \"both_ways\": %.2f, ", best[0], best[1], best[2]);
}

static void charge(long long before, long long after) {
    if (before < 0 || after < 0) printf("\"charged_mib\": null}, ");
    else printf("\"charged_mib\": %lld}, ", (after - before) / MIB);
}

/* Pages of the kernel, registered with the driver. */
static void registered(const char *name, size_t bytes, char *pages, int advice) {
    if (pages == MAP_FAILED || (advice && madvise(pages, bytes, advice))) {
        if (pages != MAP_FAILED) munmap(pages, bytes);
        printf("\"%s\": null, ", name);
        return;
    }
    long long before = charged();
    double began = seconds();
    memset(pages, 1, bytes);
    double filled = seconds();
    CU("cuMemHostRegister_v2", (void *, size_t, unsigned), (pages, bytes, 0));
    double done = seconds();
    printf("\"%s\": {\"fill\": %.2f, \"register\": %.2f, ", name, bytes / (filled - began) / 1e9, bytes / (done - filled) / 1e9);
    copies(pages, bytes);
    charge(before, charged());
    CU("cuMemHostUnregister", (void *), (pages));
    munmap(pages, bytes);
}

static char *map(size_t bytes, int flags, int file) { return mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, file, 0); }

static char *of_memfd(size_t bytes, unsigned flags) {
    int file = memfd_create("pinned", flags);
    char *pages = MAP_FAILED;
    if (file >= 0 && !ftruncate(file, (off_t)bytes)) pages = map(bytes, MAP_SHARED, file);
    if (file >= 0) close(file);
    return pages;
}

/* Memory that the driver allocates on the host. */
static void by_driver(size_t bytes) {
    long long before = charged();
    double began = seconds();
    void *host;
    CU("cuMemHostAlloc", (void **, size_t, unsigned), (&host, bytes, 0));
    printf("\"the driver's\": {\"fill\": null, \"register\": %.2f, ", bytes / (seconds() - began) / 1e9);
    copies(host, bytes);
    charge(before, charged());
    CU("cuMemFreeHost", (void *), (host));
}

static int refused(const char *name, int result) {
    if (result) fprintf(stderr, "%s: CUDA error %d\n", name, result);
    return result;
}

/* Try a call that a driver may not know; its result. */
#define TRY(name, types, arguments) refused(name, ((int(*) types)driver_symbol(name)) arguments)

/* A handle of memory on the host's first node, mapped for host and device. */
static void on_node(size_t bytes) {
    struct property property = {.type = PINNED, .where = {HOST_NUMA, 0}};
    struct access access[] = {{{HOST_NUMA, 0}, READ_WRITE}, {{ON_DEVICE, 0}, READ_WRITE}};
    unsigned long long handle;
    dptr at;
    long long before = charged();
    double began = seconds();
    if (TRY("cuMemCreate", (unsigned long long *, size_t, const struct property *, unsigned long long), (&handle, bytes, &property, 0))) {
        printf("\"a handle on a node\": null");
        return;
    }
    CU("cuMemAddressReserve", (dptr *, size_t, size_t, dptr, unsigned long long), (&at, bytes, 0, 0, 0));
    CU("cuMemMap", (dptr, size_t, size_t, unsigned long long, unsigned long long), (at, bytes, 0, handle, 0));
    CU("cuMemSetAccess", (dptr, size_t, const struct access *, size_t), (at, bytes, access, 2));
    printf("\"a handle on a node\": {\"fill\": null, \"register\": %.2f, ", bytes / (seconds() - began) / 1e9);
    copies((char *)(size_t)at, bytes);
    long long after = charged();
    if (before < 0 || after < 0) printf("\"charged_mib\": null}");
    else printf("\"charged_mib\": %lld}", (after - before) / MIB);
    CU("cuMemUnmap", (dptr, size_t), (at, bytes));
    CU("cuMemRelease", (unsigned long long), (handle));
    CU("cuMemAddressFree", (dptr, size_t), (at, bytes));
}

int main(int count, char **words) {
    size_t bytes = count > 1 ? strtoull(words[1], NULL, 10) : 0;
    if (!bytes || bytes % (2 * MIB)) return 2;
    make_context();
    for (int one = 0; one < 2; one++) {
        CU("cuMemAlloc_v2", (dptr *, size_t), (&device[one], bytes / 2));
        CU("cuStreamCreate", (void **, unsigned), (&stream[one], 1));
    }
    printf("{");
    registered("a file in memory", bytes, of_memfd(bytes, MFD_CLOEXEC), 0);
    registered("pages of 4 KiB", bytes, map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1), MADV_NOHUGEPAGE);
    registered("huge pages by advice", bytes, map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1), MADV_HUGEPAGE);
    registered("huge pages reserved", bytes, map(bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1), 0);
    by_driver(bytes);
    on_node(bytes);
    printf("}\n");
    return 0;
}

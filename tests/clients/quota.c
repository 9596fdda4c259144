/* A CUDA driver program that executes commands from its standard input, with one answer a line. It
 * knows nothing of gpushare: it opens libcuda.so.1 and looks functions up by name, as most programs
 * do.
 *
 *   init              -> init RESULT                cuInit, device 0, its primary context
 *   on ORDINAL        -> on RESULT                  from now on with the primary context of that device
 *   alloc BYTES       -> alloc RESULT
 *   fill BYTES        -> fill COUNT RESULT          allocates until the first refusal
 *   free COUNT        -> free RESULT                the COUNT most recent, first failure counts
 *   check             -> check COUNT                writes new words into every live allocation, and reads them back
 *   kept              -> kept COUNT                 only reads: the allocations that have the words of the last check
 *   first             -> first COUNT                the same of the first word alone: 1 or 0
 *   info              -> info FREE TOTAL RESULT     cuMemGetInfo
 *   infos COUNT       -> infos RESULT               that so often
 *   total             -> total BYTES RESULT         cuDeviceTotalMem of the device it is on
 *   nvml              -> nvml FREE TOTAL RESULT     the first device's memory, by NVML
 *   fork              -> fork PID                   a child that does nothing until it is killed
 *   exec              -> exec 0                  from then on it is sleep(1), a program without CUDA
 *   anew TENANT       -> anew 0                  from then on it is this program from its beginning, in that tenant;
 *                                               without the library if that is "-"
 *   preload           -> preload YES                whether the library is in this process: 1 or 0
 *   exit STATUS       (no answer)
 *
 * RESULT is the CUresult as a number. The end of the input ends it with status 0. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long dptr;

static int (*init_)(unsigned);
static int (*device_get)(int *, int);
static int (*total_mem)(size_t *, int);
static int (*retain)(void **, int);
static int (*set_current)(void *);
static int (*mem_alloc)(dptr *, size_t);
static int (*mem_free)(dptr);
static int (*mem_info)(size_t *, size_t *);
static int (*to_device)(dptr, const void *, size_t);
static int (*to_host)(void *, dptr, size_t);

static struct { dptr at; size_t size; } *live;
static size_t count, room, checks;
static int device_now;

#ifdef BY_PROC_ADDRESS
/* By cuGetProcAddress, which takes names without a version. */
static void *find(void *driver, const char *name) {
    int (*ask)(const char *, void **, int, unsigned long long, int *) = dlsym(driver, "cuGetProcAddress_v2");
    char base[64];
    void *found = NULL;
    if (strncmp(name, "cu", 2)) return dlsym(driver, name);
    snprintf(base, sizeof base, "%s", name);
    if (strstr(base, "_v2")) *strstr(base, "_v2") = 0;
    return ask(base, &found, 12000, 0, NULL) ? NULL : found;
}
#else
static void *find(void *driver, const char *name) { return dlsym(driver, name); }
#endif

static void *symbol(void *driver, const char *name) {
    void *found = find(driver, name);
    if (!found) {
        fprintf(stderr, "no %s\n", name);
        exit(2);
    }
    return found;
}

/* Total, free, used. */
static int by_nvml(unsigned long long *told) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *device;
    if (!library) return -1;
    int result = ((int (*)(void))symbol(library, "nvmlInit_v2"))();
    if (!result) result = ((int (*)(unsigned, void **))symbol(library, "nvmlDeviceGetHandleByIndex_v2"))(0, &device);
    if (!result) result = ((int (*)(void *, void *))symbol(library, "nvmlDeviceGetMemoryInfo"))(device, told);
    return result;
}

static int start(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    init_ = symbol(driver, "cuInit");
    device_get = symbol(driver, "cuDeviceGet");
    total_mem = symbol(driver, "cuDeviceTotalMem_v2");
    retain = symbol(driver, "cuDevicePrimaryCtxRetain");
    set_current = symbol(driver, "cuCtxSetCurrent");
    mem_alloc = symbol(driver, "cuMemAlloc_v2");
    mem_free = symbol(driver, "cuMemFree_v2");
    mem_info = symbol(driver, "cuMemGetInfo_v2");
    to_device = symbol(driver, "cuMemcpyHtoD_v2");
    to_host = symbol(driver, "cuMemcpyDtoH_v2");
    return init_(0);
}

static int turn_to(int ordinal) {
    int device, result = device_get(&device, ordinal);
    void *context;
    if (!result) result = retain(&context, device);
    if (!result) result = set_current(context);
    if (!result) device_now = ordinal;
    return result;
}

static int allocate(size_t size) {
    dptr at;
    int result = mem_alloc(&at, size);
    if (result) return result;
    if (count == room) {
        room = room ? 2 * room : 64;
        live = realloc(live, room * sizeof *live);
        if (!live) exit(2);
    }
    live[count].at = at;
    live[count++].size = size;
    return 0;
}

static int give_back(size_t number) {
    int first = 0;
    while (number-- && count) {
        int result = mem_free(live[--count].at);
        if (!first) first = result;
    }
    return first;
}

/* Each allocation has words at its two ends and every 2 MiB between them. */
static const size_t STRIDE = 2 << 20;

/* The place of the word after the one at `offset`: at last the end, then `size`. */
static size_t next(size_t offset, size_t size) {
    size_t last = size - 8;
    if (offset == last) return size;
    return offset + STRIDE + 8 <= last ? offset + STRIDE : last;
}

/* No word is 0, none of an earlier check is equal to one of the last check, and each tells its
 * allocation and its place: two allocations that overlap are found out, and so is memory that was
 * lost, mixed up, or brought back as it was earlier. */
static size_t word_at(size_t i, size_t offset) { return checks << 48 ^ (i + 1) << 32 ^ offset / 8; }

static int write_words(size_t i) {
    for (size_t offset = 0; offset < live[i].size; offset = next(offset, live[i].size)) {
        size_t word = word_at(i, offset);
        if (to_device(live[i].at + offset, &word, 8)) return 0;
    }
    return 1;
}

static int has_word(size_t i, size_t offset) {
    size_t word = 0;
    return !to_host(&word, live[i].at + offset, 8) && word == word_at(i, offset);
}

static int has_words(size_t i) {
    for (size_t offset = 0; offset < live[i].size; offset = next(offset, live[i].size))
        if (!has_word(i, offset)) return 0;
    return 1;
}

static size_t kept(void) {
    size_t good = 0;
    for (size_t i = 0; i < count; i++) good += has_words(i);
    return good;
}

static size_t check(void) {
    checks++;
    for (size_t i = 0; i < count; i++)
        if (!write_words(i)) return 0;
    return kept();
}

static int preloaded(void) {
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) found |= strstr(line, "/libgpushare.so") != NULL;
    if (maps) fclose(maps);
    return found;
}

int main(void) {
    char word[32], line[256];
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long number = 0;
        if (sscanf(line, "%31s %llu", word, &number) < 1) continue;
        if (!strcmp(word, "init")) {
            int result = start();
            printf("init %d\n", result ? result : turn_to(0));
        } else if (!strcmp(word, "on")) {
            printf("on %d\n", turn_to((int)number));
        } else if (!strcmp(word, "alloc")) {
            printf("alloc %d\n", allocate(number));
        } else if (!strcmp(word, "fill")) {
            int result;
            size_t before = count;
            while (!(result = allocate(number))) {}
            printf("fill %zu %d\n", count - before, result);
        } else if (!strcmp(word, "free")) {
            printf("free %d\n", give_back(number));
        } else if (!strcmp(word, "check")) {
            printf("check %zu\n", check());
        } else if (!strcmp(word, "kept")) {
            printf("kept %zu\n", kept());
        } else if (!strcmp(word, "first")) {
            printf("first %d\n", count && has_word(0, 0));
        } else if (!strcmp(word, "info")) {
            size_t available = 0, all = 0;
            int result = mem_info(&available, &all);
            printf("info %zu %zu %d\n", available, all, result);
        } else if (!strcmp(word, "infos")) {
            size_t available = 0, all = 0;
            int result = 0;
            while (number-- && !result) result = mem_info(&available, &all);
            printf("infos %d\n", result);
        } else if (!strcmp(word, "total")) {
            size_t all = 0;
            int device = 0, result = device_get(&device, device_now);
            if (!result) result = total_mem(&all, device);
            printf("total %zu %d\n", all, result);
        } else if (!strcmp(word, "nvml")) {
            unsigned long long told[3] = {0};
            int result = by_nvml(told);
            printf("nvml %llu %llu %d\n", told[1], told[0], result);
        } else if (!strcmp(word, "fork")) {
            pid_t child = fork();
            if (!child) {
                for (;;) pause();
            }
            printf("fork %d\n", (int)child);
        } else if (!strcmp(word, "exec")) {
            printf("exec 0\n");
            execlp("sleep", "sleep", "infinity", NULL);
            exit(2);
        } else if (!strcmp(word, "anew")) {
            char tenant[65] = "";
            sscanf(line, "%*s %64s", tenant);
            if (strcmp(tenant, "-")) setenv("GPUSHARE_TENANT", tenant, 1);
            else unsetenv("LD_PRELOAD");
            printf("anew 0\n");
            execl("/proc/self/exe", "quota", NULL);
            exit(2);
        } else if (!strcmp(word, "preload")) {
            printf("preload %d\n", preloaded());
        } else if (!strcmp(word, "exit")) {
            exit((int)number);
        } else {
            printf("unknown %s\n", word);
        }
    }
    return 0;
}

/* An NVML program, as a monitoring tool would be: prints the state of device 0, in each version of
 * each query. usage: monitor [pid]    with a pid, the last line says in which lists that process
 * is. With WIDE defined, the entries of the newest list are those of drivers 535.43 to 535.86 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned long long total, free, used; } memory_v1;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned pid; unsigned long long bytes; } entry_v1;
typedef struct { unsigned pid; unsigned long long bytes; unsigned instance, compute; } entry_v2;
typedef struct { unsigned pid; unsigned long long bytes; unsigned instance, compute; unsigned long long protected_bytes; } detail;
#ifdef WIDE
typedef detail entry_v3;
#else
typedef entry_v2 entry_v3;
#endif
typedef struct { unsigned version, mode, count; void *entries; } detail_list;
/* Of a version that no driver has yet. */
typedef struct { detail first; unsigned long long more[8]; } longer;

static void *library;
static void *symbol(const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "no %s\n", name);
        exit(2);
    }
    return found;
}
#define CALL(name, types) ((int (*) types)symbol(name))

static void print(const char *what, int result, unsigned count) {
    printf("%s: %d, %u\n", what, result, count);
}

int main(int argc, char **argv) {
    void *device;
    memory_v1 one = {0};
    memory_v2 two = {0};
    entry_v1 old[64];
    entry_v2 second[64];
    entry_v3 new[64];
    detail details[64];
    unsigned wanted = argc > 1 ? (unsigned)atoi(argv[1]) : 0, count, listed = 0;
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library || CALL("nvmlInit_v2", (void))()) return 2;
    if (CALL("nvmlDeviceGetHandleByIndex_v2", (unsigned, void **))(0, &device)) return 2;

    int result = CALL("nvmlDeviceGetMemoryInfo", (void *, memory_v1 *))(device, &one);
    printf("memory: %d, total %llu, used %llu, free %llu\n", result, one.total, one.used, one.free);
    two.version = sizeof two | 2 << 24;
    result = CALL("nvmlDeviceGetMemoryInfo_v2", (void *, memory_v2 *))(device, &two);
    printf("memory_v2: %d, total %llu, used %llu, free %llu\n", result, two.total, two.used + two.reserved, two.free);
    two.version = 7;
    printf("memory of no version: %d\n", CALL("nvmlDeviceGetMemoryInfo_v2", (void *, memory_v2 *))(device, &two));
    printf("memory nowhere: %d\n", CALL("nvmlDeviceGetMemoryInfo", (void *, memory_v1 *))(device, NULL));

    count = 64;
    result = CALL("nvmlDeviceGetComputeRunningProcesses", (void *, unsigned *, entry_v1 *))(device, &count, old);
    print("processes", result, count);
    for (unsigned i = 0; !result && i < count; i++) listed |= old[i].pid == wanted ? 1 : 0;
    count = 64;
    result = CALL("nvmlDeviceGetComputeRunningProcesses_v2", (void *, unsigned *, entry_v2 *))(device, &count, second);
    print("nvmlDeviceGetComputeRunningProcesses_v2", result, count);
    for (unsigned i = 0; !result && i < count; i++) listed |= second[i].pid == wanted ? 2 : 0;
    count = 64;
    result = CALL("nvmlDeviceGetComputeRunningProcesses_v3", (void *, unsigned *, entry_v3 *))(device, &count, new);
    print("nvmlDeviceGetComputeRunningProcesses_v3", result, count);
    for (unsigned i = 0; !result && i < count; i++) listed |= new[i].pid == wanted ? 4 : 0;
    count = 0;
    result = CALL("nvmlDeviceGetComputeRunningProcesses_v3", (void *, unsigned *, entry_v3 *))(device, &count, NULL);
    print("how many", result, count);
    result = CALL("nvmlDeviceGetComputeRunningProcesses_v3", (void *, unsigned *, entry_v3 *))(device, &count, new);
    print("exactly as many", result, count);
    count = 64;
    result = CALL("nvmlDeviceGetGraphicsRunningProcesses_v3", (void *, unsigned *, entry_v3 *))(device, &count, new);
    print("graphics", result, count);
    detail_list list = {sizeof list | 1 << 24, 0, 64, details};
    result = CALL("nvmlDeviceGetRunningProcessDetailList", (void *, detail_list *))(device, &list);
    print("details", result, list.count);
    for (unsigned i = 0; !result && i < list.count; i++) listed |= details[i].pid == wanted ? 8 : 0;
    list.version = 5;
    printf("details of no version: %d\n", CALL("nvmlDeviceGetRunningProcessDetailList", (void *, detail_list *))(device, &list));
    static longer newer[64];
    list = (detail_list){sizeof list | 2 << 24, 0, 64, newer};
    result = CALL("nvmlDeviceGetRunningProcessDetailList", (void *, detail_list *))(device, &list);
    print("newer details", result, list.count);
    if (wanted) printf("listed: %u\n", listed);
    return 0;
}

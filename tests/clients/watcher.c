/* A monitor that lives on: it asks NVML only, and answers one command a line. It never starts CUDA.
 *
 *   look PID             -> look RESULT TOTAL USED COUNT LISTED    the memory of device 0 in MiB, how many processes compute on it, and
 *                                                                 whether PID is among them
 *   looks COUNT          -> looks RESULT                           COUNT questions for memory; the first result that is not success */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned pid; unsigned long long bytes; unsigned instance, compute; } entry;

int main(void) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *device;
    if (!library) return 2;
    int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
    int (*by_index)(unsigned, void **) = (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    int (*tell)(void *, memory *) = (int (*)(void *, memory *))dlsym(library, "nvmlDeviceGetMemoryInfo");
    int (*list)(void *, unsigned *, entry *) =
        (int (*)(void *, unsigned *, entry *))dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
    if (!init || !by_index || !tell || !list || init() || by_index(0, &device)) return 2;

    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        unsigned wanted = 0, count = 64, listed = 0;
        memory all = {0};
        entry entries[64];
        if (sscanf(line, "look %u", &wanted) == 1) {
            int result = tell(device, &all);
            if (!result) result = list(device, &count, entries);
            for (unsigned i = 0; !result && i < count; i++) listed |= entries[i].pid == wanted;
            printf("look %d %llu %llu %u %u\n", result, all.total >> 20, all.used >> 20, count, listed);
        } else if (sscanf(line, "looks %u", &wanted) == 1) {
            int result = 0;
            for (unsigned i = 0; i < wanted && !result; i++) result = tell(device, &all);
            printf("looks %d\n", result);
        } else {
            return 3;
        }
        fflush(stdout);
    }
    return 0;
}

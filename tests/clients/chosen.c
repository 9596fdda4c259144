/* A monitor that sets a variable between two looks. usage: chosen NAME VALUE
 *
 * Prints the total memory of NVML's first device before and after. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct { unsigned long long total, free, used; } memory;

static void *library, *device;
#define CALL(name, types) ((int (*) types)dlsym(library, name))

static unsigned long long total(void) {
    memory shown = {0};
    return CALL("nvmlDeviceGetMemoryInfo", (void *, memory *))(device, &shown) ? 0 : shown.total;
}

int main(int argc, char **argv) {
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (argc < 3 || !library || CALL("nvmlInit_v2", (void))()) return 2;
    if (CALL("nvmlDeviceGetHandleByIndex_v2", (unsigned, void **))(0, &device)) return 2;
    unsigned long long before = total();
    setenv(argv[1], argv[2], 1);
    printf("%llu %llu\n", before, total());
    return 0;
}

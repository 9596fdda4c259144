// Initialises the driver named by the first argument and prints the attribute MPS_ENABLED of its first device.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *lib = dlopen(argv[argc - 1], RTLD_NOW);
    int device = -1, enabled = -1;
    if (!lib) return fprintf(stderr, "%s\n", dlerror()), 2;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(lib, "cuInit");
    int (*get)(int *, int) = (int (*)(int *, int))dlsym(lib, "cuDeviceGet");
    int (*ask)(int *, int, int) = (int (*)(int *, int, int))dlsym(lib, "cuDeviceGetAttribute");
    if (init(0) || get(&device, 0) || ask(&enabled, 133, device)) return 1;
    printf("mps %d\n", enabled);
    return 0;
}

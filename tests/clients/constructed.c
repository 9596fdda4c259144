/* A library that starts CUDA while it is loaded, as C++ extensions with static objects do. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void begin(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
    if (!init) exit(9);
    puts("constructor");
    fflush(stdout);
    printf("constructor: %d\n", init(0));
    fflush(stdout);
}

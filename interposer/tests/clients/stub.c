// A stub of the driver, as programs link to: it loads the driver at the first call. With
// `-shared` it is the stub, else the program that is linked to it.
#include <dlfcn.h>
#include <stdio.h>

int cuInit(unsigned flags);

#ifdef STUB
int cuInit(unsigned flags) {
    int (*real)(unsigned);
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    if (!driver) return 100;
    *(void **)&real = dlsym(driver, "cuInit");
    return real ? real(flags) : 100;
}
#else
int main(void) {
    int answer = cuInit(0);
    printf("%d, then %d\n", answer, cuInit(0));
    return 0;
}
#endif

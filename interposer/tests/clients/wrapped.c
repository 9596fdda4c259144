/* Calls the functions that wrapper.c wraps. The last argument, if any, is the driver to load
 * first. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
  printf("%s\n", getppid() > 0 ? "a parent" : "no parent");
  if (argc > 1 && !dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL)) { printf("%s\n", dlerror()); return 1; }
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(RTLD_DEFAULT, "cuInit");
  printf("cuInit: %d\n", init ? init(0) : -1);
  return 0;
}

/* Prints whether the program is privileged and where the driver's cuInit and its answer lie. usage:
 * secure driver */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

int main(int argc, char **argv) {
  (void)argc;
  void *driver = dlopen(argv[1], RTLD_NOW);
  if (!driver) { printf("%s\n", dlerror()); return 1; }
  Dl_info info = {0};
  void *init = dlsym(driver, "cuInit");
  if (!init || !dladdr(init, &info)) return 2;
  printf("secure %lu, cuInit in %s\n", getauxval(AT_SECURE), strrchr(info.dli_fname, '/') + 1);
  return 0;
}

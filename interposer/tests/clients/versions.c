/* Asks cuGetProcAddress for one name at several versions and prints the library of each answer.
   usage: versions driver name version[:flags]...
   "init" in place of a version calls cuInit. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
  void *driver = dlopen(argv[1], RTLD_NOW);
  int (*ask)(const char *, void **, int, uint64_t, int *) = dlsym(driver, "cuGetProcAddress_v2");
  for (int at = 3; at < argc; at++) {
    void *found = NULL;
    Dl_info info;
    const char *flags = strchr(argv[at], ':');
    if (!strcmp(argv[at], "init")) {
      int (*init)(unsigned) = dlsym(driver, "cuInit");
      if (init(0)) return 1;
      continue;
    }
    if (ask(argv[2], &found, atoi(argv[at]), flags ? (uint64_t)atoi(flags + 1) : 0, NULL) || !found || !dladdr(found, &info)) return 1;
    puts(strrchr(info.dli_fname, '/') + 1);
  }
  return 0;
}

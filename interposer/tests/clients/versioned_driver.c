/* Says in which library the driver's functions lie, looked up by name and version. usage: versioned_driver <driver> <version> */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void *driver;

static void show(const char *name, const char *version) {
  dlerror();
  void *found = dlvsym(driver, name, version);
  const char *error = dlerror();
  Dl_info info = {0};
  if (found) dladdr(found, &info);
  const char *file = info.dli_fname ? info.dli_fname : "/none";
  printf("%s: %s%s\n", name, strrchr(file, '/') + 1, error ? ", with an error" : "");
}

int main(int argc, char **argv) {
  driver = argc > 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
  if (!driver) { printf("%s\n", dlerror()); return 1; }
  show("cuInit", argv[2]);
  show("cuStreamSynchronize", argv[2]);
  show("cuDriverGetVersion", argv[2]);
  show("cuMemAllocAsync", argv[2]);
  show("cuInit", "libcuda.so.0");
  return 0;
}

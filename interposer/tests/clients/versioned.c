/* Says which library each answer lies in: of lookups by name, also through tool.c, and by name and version.
   usage: versioned <driver> */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef void *(*finder)(void *, const char *);

static void show(const char *what, void *found) {
  const char *error = dlerror();
  Dl_info info = {0};
  if (found) dladdr(found, &info);
  const char *file = info.dli_fname ? info.dli_fname : "/none";
  const char *base = strrchr(file, '/');
  printf("%s: %s%s\n", what, base ? base + 1 : file, error ? ", with an error" : "");
}

static void *versioned(void *handle, const char *name) {
  static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
  void *found = NULL;
  for (int i = 0; i < 3 && !found; i++) found = dlvsym(handle, name, versions[i]);
  if (found) dlerror();
  return found;
}

int main(int argc, char **argv) {
  void *driver = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
  if (!driver) { printf("%s\n", dlerror()); return 1; }
  show("cuInit", dlsym(driver, "cuInit"));
  finder (*tools)(void) = (finder(*)(void))dlsym(RTLD_DEFAULT, "next_of_the_tool");
  if (tools) show("the tool's next dlsym", (void *)tools());
  dlerror();
  show("dlsym, default", versioned(RTLD_DEFAULT, "dlsym"));
  show("dlsym, next", versioned(RTLD_NEXT, "dlsym"));
  show("dlsym of libc", versioned(dlopen("libc.so.6", RTLD_LAZY), "dlsym"));
  show("malloc", versioned(RTLD_DEFAULT, "malloc"));
  show("dlsym of no version", dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_1.99"));
  show("dlsym of the driver", dlvsym(driver, "dlsym", "GLIBC_1.99"));
  return 0;
}

/* A library that wraps a function of the C library's, as the runtimes of sanitizers do: it looks
 * for the real one in its constructor, and its own may not be called before that. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>

typedef int (*visitor)(struct dl_phdr_info *, size_t, void *);
static int (*real)(visitor, void *);

int dl_iterate_phdr(visitor visit, void *data) {
  if (!real) abort();
  return real(visit, data);
}

__attribute__((constructor)) static void begin(void) {
  real = (int (*)(visitor, void *))dlsym(RTLD_NEXT, "dl_iterate_phdr");
}

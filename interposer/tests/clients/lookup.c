/* Looks names up in one way and prints which library each answer lies in.
   usage: lookup <way> [library] name...    ways: default next self handle:<mode> */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void show(const char *name, void *found) {
  const char *error = dlerror();
  Dl_info info;
  if (!found) {
    printf("%s: null, %s\n", name, error ? "with an error" : "without an error");
  } else if (dladdr(found, &info)) {
    const char *base = strrchr(info.dli_fname, '/');
    printf("%s: %s%s\n", name, base ? base + 1 : info.dli_fname, error ? ", with an error" : "");
  }
}

int main(int argc, char **argv) {
  const char *way = argv[1];
  int at = 2;
  void *handle = RTLD_DEFAULT;
  if (!strcmp(way, "next")) handle = RTLD_NEXT;
  if (!strcmp(way, "self")) handle = dlopen(NULL, RTLD_LAZY);
  if (!strncmp(way, "load", 4)) { /* load-local, load-global: then as for default; load-handle: by the handle */
    int global = !strcmp(way, "load-global");
    void *library = dlopen(argv[at++], RTLD_LAZY | (global ? RTLD_GLOBAL : RTLD_LOCAL));
    if (!library) { printf("%s\n", dlerror()); return 1; }
    if (!strcmp(way, "load-handle")) handle = library;
  }
  if (!strcmp(way, "namespace")) {
    handle = dlmopen(LM_ID_NEWLM, argv[at++], RTLD_LAZY);
    if (!handle) { printf("%s\n", dlerror()); return 1; }
  }
  for (; at < argc; at++) {
    /* In each branch the call is written out, so that it comes from this program. */
    void *found = handle == RTLD_NEXT ? dlsym(RTLD_NEXT, argv[at]) : dlsym(handle, argv[at]);
    show(argv[at], found);
  }
  return 0;
}

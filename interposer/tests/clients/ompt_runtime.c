/* The way an OpenMP runtime looks for a tool: its own default definition asks for the next one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

typedef void *(*start)(unsigned, const char *);

__attribute__((weak)) void *ompt_start_tool(unsigned version, const char *runtime) {
  start next = (start)dlsym(RTLD_NEXT, "ompt_start_tool");
  return next ? next(version, runtime) : NULL;
}

int runtime_has_tool(void) {
  start any = (start)dlsym(RTLD_DEFAULT, "ompt_start_tool");
  return any && any(5, "a runtime") != NULL;
}

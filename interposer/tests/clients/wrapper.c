/* A library that wraps functions in the usual way: by asking for the next definition after its
 * own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

static int depth;

pid_t getppid(void) {
  pid_t (*next)(void) = (pid_t (*)(void))dlsym(RTLD_NEXT, "getppid");
  if (depth++ > 3) { write(1, "getppid: wrapped itself\n", 24); _exit(3); }
  pid_t answer = next();
  depth--;
  return answer;
}

int cuInit(unsigned flags) {
  int (*next)(unsigned) = (int (*)(unsigned))dlsym(RTLD_NEXT, "cuInit");
  if (depth++ > 3) { write(1, "cuInit: wrapped itself\n", 23); _exit(3); }
  int answer = next ? next(flags) : -1;
  printf("cuInit passed the wrapper\n");
  depth--;
  return answer;
}

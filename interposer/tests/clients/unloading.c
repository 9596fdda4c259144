/* A wrapper that threads ask for the next definition while another one loads and unloads libraries.
 * With WRAPPER the wrapper, with PLUGIN such a library, else the program. Its arguments are rounds,
 * and files of the libraries. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef WRAPPER
int cuInit(unsigned flags) {
  int (*next)(unsigned) = (int (*)(unsigned))dlsym(RTLD_NEXT, "cuInit");
  return next ? next(flags) : -1;
}
#elif defined PLUGIN
int plugged;
#else
enum { ASKERS = 7 };
static char **files;
static int rounds, count;
static atomic_int over;

static void *load(void *unused) {
  for (int round = 0; round < rounds; round++) {
    void *opened[count];
    for (int i = 0; i < count; i++) opened[i] = dlopen(files[i], RTLD_NOW);
    for (int i = 0; i < count; i++)
      if (!opened[i] || dlclose(opened[i])) exit(1);
  }
  over = 1;
  return unused;
}

static void *ask(void *init) {
  while (!over && ((int (*)(unsigned))init)(0) == -1);
  return init;
}

int main(int argc, char **argv) {
  pthread_t loader, askers[ASKERS];
  rounds = atoi(argv[1]);
  files = argv + 2;
  count = argc - 2;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(RTLD_DEFAULT, "cuInit");
  if (!init || pthread_create(&loader, NULL, load, NULL)) return 1;
  for (int i = 0; i < ASKERS; i++)
    if (pthread_create(&askers[i], NULL, ask, init)) return 1;
  pthread_join(loader, NULL);
  for (int i = 0; i < ASKERS; i++) pthread_join(askers[i], NULL);
  printf("cuInit: %d\n", init(0));
  return 0;
}
#endif

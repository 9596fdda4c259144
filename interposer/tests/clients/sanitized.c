/* A program that uses what sanitizers intercept: the heap, threads, dlsym. With OVERFLOW it has a
 * bug for them to find. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void *work(void *argument) {
  volatile char *bytes = malloc(64);
  for (int i = 0; i < 64; i++) bytes[i] = 1;
#ifdef OVERFLOW
  volatile int at = 64;
  bytes[at] = 2;
#endif
  free((void *)bytes);
  return argument;
}

int main(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, work, NULL);
  pthread_join(thread, NULL);
  printf("%s %s\n", dlsym(RTLD_DEFAULT, "strlen") ? "strlen" : "nothing", dlsym(RTLD_DEFAULT, "cuInit") ? "cuInit" : "nothing");
  return 0;
}

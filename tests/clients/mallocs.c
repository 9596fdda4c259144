/* A library that wraps malloc in the way of textbooks: the first call looks for the next definition. That look calls no
 * malloc in any glibc. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

void *malloc(size_t bytes) {
    static void *(*next)(size_t);
    if (!next) next = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    return next(bytes);
}

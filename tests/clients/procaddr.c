/* Looks functions up by cuGetProcAddress, v1 and v2, as its standard input says: lines of "name
 * version flags". For each it prints what both answered: result, status, and the name and library
 * of the function. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static void show(void *found) {
    Dl_info info;
    if (!found) {
        printf(" null");
    } else if (dladdr(found, &info) && info.dli_sname && info.dli_saddr == found) {
        printf(" %s%s", info.dli_sname, strstr(info.dli_fname, "libgpushare") ? "@ours" : "");
    } else {
        printf(" unnamed");
    }
}

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*v1)(const char *, void **, int, uint64_t) = dlsym(driver, "cuGetProcAddress");
    int (*v2)(const char *, void **, int, uint64_t, int *) = dlsym(driver, "cuGetProcAddress_v2");
    if (!v1 || !v2) return 1;
    char name[128];
    int version;
    unsigned long long flags;
    while (scanf("%127s %d %llu", name, &version, &flags) == 3) {
        void *one = (void *)&one, *two = (void *)&two, *bare = (void *)&bare;
        int status = -1;
        int result1 = v1(name, &one, version, flags);
        int result2 = v2(name, &two, version, flags, &status);
        int result3 = v2(name, &bare, version, flags, NULL);
        printf("%s %d %llu: %d %d %d %d", name, version, flags, result1, result2, result3, status);
        show(result1 ? NULL : one);
        show(result2 ? NULL : two);
        show(result3 ? NULL : bare);
        putchar('\n');
    }
    /* Odd arguments end as the driver says, with and without the library in front. */
    void *pfn = NULL;
    int status = -1;
    printf("odd: %d", v2("", &pfn, 12000, 0, &status));
    printf(" %d", v2(NULL, &pfn, 12000, 0, &status));
    printf(" %d", v2("cuInit", NULL, 12000, 0, &status));
    printf(" %d", v2("cuInit", &pfn, 12000, 99, &status));
    printf(" %d\n", v1("cuInit", NULL, 12000, 0));
    return 0;
}

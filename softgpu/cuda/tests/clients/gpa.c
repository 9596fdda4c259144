// Reads "NAME VERSION FLAGS" lines ("-" is the empty name), calls cuGetProcAddress_v2 of the library given as argument, prints
// "RESULT STATUS SYMBOL": the exported symbol of the returned address, "-" for NULL; "versions-differ" for SYMBOL unless the first
// version returns the same, or an error where the second one gives NULL.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef int (*gpa2)(const char *, void **, int, unsigned long long, int *);
enum { NOT_FOUND = 500 };

typedef int (*gpa1)(const char *, void **, int, unsigned long long);

int main(int argc, char **argv) {
    void *lib = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!lib) return fprintf(stderr, "%s\n", dlerror()), 2;
    gpa2 v2 = (gpa2)dlsym(lib, "cuGetProcAddress_v2");
    gpa1 v1 = (gpa1)dlsym(lib, "cuGetProcAddress");
    char name[128];
    int version;
    unsigned long long flags;
    while (scanf("%127s %d %llu", name, &version, &flags) == 3) {
        const char *asked = strcmp(name, "-") ? name : "";
        void *p2 = &p2, *p1 = &p1;
        int status = -1;
        int r2 = v2(asked, &p2, version, flags, &status);
        int r1 = v1(asked, &p1, version, flags);
        Dl_info info = {0};
        const char *symbol = "-";
        if (r2 == 0 && p2) symbol = dladdr(p2, &info) && info.dli_sname && info.dli_saddr == p2 ? info.dli_sname : "?";
        int wanted = r2 == 0 && !p2 ? NOT_FOUND : r2;
        if (r1 != wanted || (r1 == 0 && p1 != p2)) symbol = "versions-differ";
        printf("%d %d %s\n", r2, status, symbol);
    }
    return 0;
}

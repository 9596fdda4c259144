/*
 * Looks up driver functions in the order of a transcript of tests/data/cudart and through the same
 * entry points, and prints the results: result, status, found, and which symbol of which library
 * the address is. An answered cuGetProcAddress is asked from then on, so that a way round a library
 * in front of the driver would show.
 *
 * usage: replay TRANSCRIPT
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*get_v1)(const char *, void **, int, unsigned long long);
typedef int (*get_v2)(const char *, void **, int, unsigned long long, int *);

static get_v1 ask_v1;
static get_v2 ask_v2;

/* Remembers a door that was just found. */
static void door(const char *name, int version, void *found)
{
    if (!found)
        return;
    if (strcmp(name, "cuGetProcAddress_v2") == 0 || (strcmp(name, "cuGetProcAddress") == 0 && version >= 12000))
        ask_v2 = (get_v2)found;
    else if (strcmp(name, "cuGetProcAddress") == 0)
        ask_v1 = (get_v1)found;
}

static void tell(int result, const char *status, void *found)
{
    Dl_info info = { 0 };
    if (found)
        dladdr(found, &info);
    const char *file = info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
    printf("%d\t%s\t%d\t%s\t%s\n", result, status, found != NULL, file ? file + 1 : "-", info.dli_sname ? info.dli_sname : "-");
}

/* One line of the transcript; 0 if it is not understood. */
static int replay(void *driver, char *line)
{
    char *rest = line, *how = strsep(&rest, "\t"), *name = strsep(&rest, "\t"), *version = strsep(&rest, "\t"),
         *flags = strsep(&rest, "\t");
    if (!flags)
        return 0;
    void *found = NULL;
    char status[16] = "-";
    int result = 0, why = -1;
    if (strcmp(how, "dlsym") == 0) {
        found = dlsym(driver, name);
    } else if (strcmp(how, "cuGetProcAddress") == 0 && ask_v1) {
        result = ask_v1(name, &found, atoi(version), strtoull(flags, NULL, 10));
    } else if (strcmp(how, "cuGetProcAddress_v2") == 0 && ask_v2) {
        result = ask_v2(name, &found, atoi(version), strtoull(flags, NULL, 10), &why);
        snprintf(status, sizeof status, "%d", why);
    } else if (strcmp(how, "cuGetExportTable") == 0) {
        return 1; /* the end of what is replayed: its answer is not ours to ask for */
    } else {
        return 0;
    }
    door(name, atoi(version), found);
    tell(result, status, found);
    return 1;
}

int main(int argc, char **argv)
{
    FILE *transcript = argc == 2 ? fopen(argv[1], "r") : NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!transcript || !driver) {
        fprintf(stderr, "replay: %s\n", transcript ? dlerror() : "no transcript");
        return 2;
    }
    char line[512];
    while (fgets(line, sizeof line, transcript)) {
        line[strcspn(line, "\n")] = 0;
        if (line[0] == '#' || strncmp(line, "door\t", 5) == 0)
            continue;
        if (!replay(driver, line)) {
            fprintf(stderr, "replay: not understood: %s\n", line);
            return 2;
        }
    }
    return 0;
}

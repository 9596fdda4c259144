// Records how libcudart binds the driver: an auditor (rtld-audit(7)) that sees every symbol looked
// up in libcuda.so.1. It wraps cuGetProcAddress and cuGetExportTable to record the lookups through
// them. It changes no answer. See record-cudart.py.
//
// One line a question, columns separated by tabs: door, name, version, flags, result (CUresult),
// status (second answer of cuGetProcAddress_v2, - at the other doors), found (1 if a function came
// back). The file is named by RECORD_CUDART.
#define _GNU_SOURCE
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*get_v1)(const char *, void **, int, unsigned long long);
typedef int (*get_v2)(const char *, void **, int, unsigned long long, int *);
typedef int (*get_table)(const void **, const void *);

static get_v1 real_v1;
static get_v2 real_v2;
static get_table real_table;
static int out = -1;

static void *stand_in(const char *name, void *real);

static int ask_v1(const char *name, void **pfn, int version, unsigned long long flags)
{
    int result = real_v1(name, pfn, version, flags);
    void *found = result == 0 && pfn ? *pfn : NULL;
    dprintf(out, "cuGetProcAddress\t%s\t%d\t%llu\t%d\t-\t%d\n", name, version, flags, result, found != NULL);
    if (found)
        *pfn = stand_in(strcmp(name, "cuGetProcAddress") == 0 && version >= 12000 ? "cuGetProcAddress_v2" : name, found);
    return result;
}

static int ask_v2(const char *name, void **pfn, int version, unsigned long long flags, int *status)
{
    int mine = -1;
    int result = real_v2(name, pfn, version, flags, status ? status : &mine);
    void *found = result == 0 && pfn ? *pfn : NULL;
    dprintf(out, "cuGetProcAddress_v2\t%s\t%d\t%llu\t%d\t%d\t%d\n", name, version, flags, result, status ? *status : mine,
            found != NULL);
    if (found)
        *pfn = stand_in(strcmp(name, "cuGetProcAddress") == 0 && version >= 12000 ? "cuGetProcAddress_v2" : name, found);
    return result;
}

// Which table is asked for is not written down: no table is ever answered here.
static int ask_table(const void **table, const void *id)
{
    int result = real_table(table, id);
    dprintf(out, "cuGetExportTable\t-\t0\t0\t%d\t-\t%d\n", result, result == 0);
    return result;
}

static void *stand_in(const char *name, void *real)
{
    if (strcmp(name, "cuGetProcAddress") == 0)
        return real_v1 = (get_v1)real, (void *)ask_v1;
    if (strcmp(name, "cuGetProcAddress_v2") == 0)
        return real_v2 = (get_v2)real, (void *)ask_v2;
    if (strcmp(name, "cuGetExportTable") == 0)
        return real_table = (get_table)real, (void *)ask_table;
    return real;
}

unsigned int la_version(unsigned int version)
{
    const char *file = getenv("RECORD_CUDART");
    out = file ? open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644) : -1;
    return out < 0 ? 0 : version;
}

// The driver is what symbols are looked up in, and everything may be looking.
unsigned int la_objopen(struct link_map *map, Lmid_t lmid, uintptr_t *cookie)
{
    (void)lmid;
    int driver = strstr(map->l_name, "libcuda.so") != NULL;
    *cookie = driver;
    return driver ? LA_FLG_BINDTO | LA_FLG_BINDFROM : LA_FLG_BINDFROM;
}

uintptr_t la_symbind64(Elf64_Sym *sym, unsigned int index, uintptr_t *from, uintptr_t *to, unsigned int *flags, const char *name)
{
    (void)index;
    if (!*to || *from || strncmp(name, "cu", 2) != 0)
        return sym->st_value;
    if (*flags & LA_SYMB_DLSYM)
        dprintf(out, "dlsym\t%s\t0\t0\t0\t-\t1\n", name);
    return (uintptr_t)stand_in(name, (void *)sym->st_value);
}

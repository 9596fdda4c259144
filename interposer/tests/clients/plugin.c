/* A plug-in that is linked to the driver and looks its functions up itself. */
#define _GNU_SOURCE
#include <dlfcn.h>

int cuInit(unsigned flags);
void *plugin_linked(void) { return (void *)cuInit; }
void *plugin_default(const char *name) { return dlsym(RTLD_DEFAULT, name); }
void *plugin_next(const char *name) { return dlsym(RTLD_NEXT, name); }

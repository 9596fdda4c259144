/* Loads plugin.c's library and prints which library its answers lie in. usage: host plugin
 * [deep] */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void show(const char *what, void *found) {
  Dl_info info;
  const char *base = found && dladdr(found, &info) ? strrchr(info.dli_fname, '/') : NULL;
  printf("%s: %s\n", what, base ? base + 1 : "null");
}

int main(int argc, char **argv) {
  void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | (argc > 2 ? RTLD_DEEPBIND : 0));
  if (!plugin) { printf("%s\n", dlerror()); return 1; }
  void *(*linked)(void) = (void *(*)(void))dlsym(plugin, "plugin_linked");
  void *(*by_default)(const char *) = (void *(*)(const char *))dlsym(plugin, "plugin_default");
  void *(*by_next)(const char *) = (void *(*)(const char *))dlsym(plugin, "plugin_next");
  show("linked", linked());
  show("default", by_default("cuInit"));
  show("default unhooked", by_default("cuDriverGetVersion"));
  show("next", by_next("cuInit"));
  show("missing", by_default("cuGetProcAddress"));
  return 0;
}

/* How the clients that load the driver by name call it. */
static void *driver;

static void *symbol(const char *name) {
    void *found = dlsym(driver, name);
    if (!found) {
        fprintf(stderr, "no %s\n", name);
        exit(2);
    }
    return found;
}
#define CALL(name, types) ((int (*) types)symbol(name))
#define TRY(call) do { int result_ = (call); if (result_) return result_; } while (0)

/* An init for containers, as tini: `started -- PROGRAM ARGUMENTS` runs the program. */
#include <string.h>
#include <unistd.h>

int main(int count, char **arguments) {
    if (count < 3 || strcmp(arguments[1], "--"))
        return 2;
    execv(arguments[2], arguments + 2);
    return 3;
}

/* Says over a socket what another process may say, as often as it is told to.
 *
 *   impostor SOCKET TRIES REGISTERED MESSAGE...
 *
 * Each try connects, sends one of the messages (in hexadecimal: frames, the last of which has id 1) and waits for the
 * answer to id 1. Prints "tried TRIES accepted N refused N cut N": answers whose first byte is REGISTERED, other answers,
 * and connections that ended without one. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int read_all(int from, uint8_t *to, size_t bytes)
{
    while (bytes) {
        ssize_t got = read(from, to, bytes);
        if (got <= 0) return 0;
        to += got;
        bytes -= got;
    }
    return 1;
}

static uint32_t word(const uint8_t *at)
{
    return at[0] | at[1] << 8 | at[2] << 16 | (uint32_t)at[3] << 24;
}

/* The first byte of the answer to id 1, or -1. */
static int answer(int from)
{
    static uint8_t body[1 << 18];
    uint8_t head[8];
    while (read_all(from, head, sizeof head)) {
        uint32_t bytes = word(head);
        if (bytes > sizeof body || !read_all(from, body, bytes)) return -1;
        if (word(head + 4) == 1 && bytes) return body[0];
    }
    return -1;
}

static size_t bytes_of(const char *text, uint8_t *to)
{
    size_t bytes = strlen(text) / 2;
    for (size_t i = 0; i < bytes; i++) {
        unsigned value;
        sscanf(text + 2 * i, "%2x", &value);
        to[i] = value;
    }
    return bytes;
}

int main(int count, char **arguments)
{
    if (count < 5) return 2;
    int tries = atoi(arguments[2]), registered = atoi(arguments[3]), accepted = 0, refused = 0, cut = 0;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s", arguments[1]);
    for (int i = 0; i < tries; i++) {
        static uint8_t message[1 << 16];
        size_t bytes = bytes_of(arguments[4 + i % (count - 4)], message);
        int to = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (to < 0 || connect(to, (struct sockaddr *)&at, sizeof at) != 0) {
            perror(arguments[1]);
            return 1;
        }
        int said = write(to, message, bytes) == (ssize_t)bytes ? answer(to) : -1;
        if (said == registered) accepted++;
        else if (said >= 0) refused++;
        else cut++;
        close(to);
    }
    printf("tried %d accepted %d refused %d cut %d\n", tries, accepted, refused, cut);
    return 0;
}

/* A program without CUDA that says one line. */
#include <stdio.h>

int main(void) {
    puts("hello");
    return 0;
}

/* A program with an OpenMP-like runtime. */
#include <stdio.h>
int runtime_has_tool(void);
int main(void) {
  puts(runtime_has_tool() ? "tool found" : "no tool");
  return 0;
}

/* The smallest program that shows what a preload could disturb: output, threads, descriptors. */
#include <dirent.h>
#include <stdio.h>

static int entries(const char *path) {
  int count = 0;
  DIR *folder = opendir(path);
  while (folder && readdir(folder)) count++;
  if (folder) closedir(folder);
  return count;
}

int main(void) {
  printf("hello, %d threads, %d descriptors\n", entries("/proc/self/task"), entries("/proc/self/fd"));
  return 7;
}

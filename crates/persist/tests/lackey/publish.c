#include <pthread.h>
/* A page of persistent memory, and words whose stores say what the program asked of it. */
static volatile long page[512] __attribute__((aligned(4096)));
static volatile char barrier __attribute__((aligned(64))), sync_word __attribute__((aligned(64)));
static void *publish(void *at) {
  volatile long *slot = at;
  slot[8] = 42;      /* the value, in the next line */
  barrier = 1;
  slot[0] = 1;       /* the flag */
  sync_word = 1;
  return 0;
}
int main() {
  pthread_t other;
  pthread_create(&other, 0, publish, (void *)&page[64]);
  publish((void *)page);
  pthread_join(other, 0);
  return 0;
}

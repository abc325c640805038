/* A wall clock that a test can set: CLOCK_REALTIME goes by as many seconds ahead as the eight bytes of the file
 * say that WALL_OFFSET_FILE names. Other clocks are left alone. Preloaded into a server. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;

__attribute__((constructor)) static void open_offset(void)
{
    const char *path = getenv("WALL_OFFSET_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        abort();
    void *page = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (page == MAP_FAILED)
        abort();
    offset = page;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    long result = syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_REALTIME && offset)
        time->tv_sec += *offset;
    return (int)result;
}

/* Preloaded into decklog by the tests: the real-time clock goes wrong by as many seconds as the file says whose name is
 * in DECKLOG_TEST_CLOCK. Monotonic time goes on as it is, as on a machine whose clock is set or that was suspended. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *offset;

__attribute__((constructor)) static void begin(void)
{
    const char *name = getenv("DECKLOG_TEST_CLOCK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    void *at = file < 0 ? MAP_FAILED : mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (at == MAP_FAILED)
        abort();
    offset = at;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) && offset)
        now->tv_sec += *offset;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into)
{
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (into)
        *into = precise.tv_sec;
    return precise.tv_sec;
}

/* Replaces the C library's clock functions: adds to the wall clock the seconds in the file that FALSE_CLOCK names (8 bytes,
   a native integer). No other clock is changed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead;

__attribute__((constructor)) static void open_file(void)
{
    const char *name = getenv("FALSE_CLOCK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    void *content = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);

    /* A program that should have a false clock must not silently get the true one. */
    if (name && content == MAP_FAILED)
        abort();
    if (content != MAP_FAILED)
        ahead = content;
    if (file >= 0)
        close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    /* A direct system call: the C library would call this function again, and it hides the vDSO. */
    int failed = (int)syscall(SYS_clock_gettime, clock, now);

    if (!failed && ahead && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *ahead;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;

    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise))
        return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    struct timespec precise;

    if (clock_gettime(CLOCK_REALTIME, &precise))
        return -1;
    if (now)
        *now = precise.tv_sec;
    return precise.tv_sec;
}

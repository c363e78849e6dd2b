/* Takes chance and time out of a server, so that it executes the same instructions in every run. A library for LD_PRELOAD.
 *
 * Randomness: servers seed their hash tables from /dev/urandom, and under a seed of chance a command may cost 2 % more in
 * one process than in the next. They read the file RANDOMNESS instead.
 *
 * Time: what servers do on a timer would depend on how fast the machine is. Their clock instead goes on by one microsecond
 * each time it is read, which makes a command take some 20 of them, about as long as one does take. While a server sleeps
 * its clock stands still, unless nothing wakes it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <time.h>

enum { US_PER_S = 1000000, US_PER_MS = 1000, NS_PER_US = 1000 };

/* Some day in 2027. */
static const long long START = 1800000000LL * US_PER_S;

static atomic_llong elapsed;

static long long now(void) {
    return START + atomic_fetch_add(&elapsed, 1);
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    long long us = now();
    *time = (struct timeval){us / US_PER_S, us % US_PER_S};
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    (void)clock;
    long long us = now();
    *time = (struct timespec){us / US_PER_S, us % US_PER_S * NS_PER_US};
    return 0;
}

time_t time(time_t *seconds) {
    time_t result = now() / US_PER_S;
    if (seconds) *seconds = result;
    return result;
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout_ms) {
    static int (*next)(int, struct epoll_event *, int, int);
    if (!next) next = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
    int count = next(epoll, events, most, timeout_ms);
    if (count == 0 && timeout_ms > 0) atomic_fetch_add(&elapsed, (long long)timeout_ms * US_PER_MS);
    return count;
}

typedef FILE *(*Open)(const char *path, const char *mode);

static FILE *open_by(const char *function, const char *path, const char *mode) {
    Open next = (Open)dlsym(RTLD_NEXT, function);
    const char *randomness = getenv("RANDOMNESS");
    return next(randomness && strcmp(path, "/dev/urandom") == 0 ? randomness : path, mode);
}

FILE *fopen(const char *path, const char *mode) {
    return open_by("fopen", path, mode);
}

FILE *fopen64(const char *path, const char *mode) {
    return open_by("fopen64", path, mode);
}

/* A module that makes the kernel forget when it is to wake the server.
 *
 *   SILENCER.SILENCE   disarms each timer descriptor of the server, and answers how many there are. */

#define _GNU_SOURCE

#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "module.h"

enum { MOST_DESCRIPTORS = 1024 };

static int (*ReplyWithLongLong)(RedisModuleCtx *ctx, long long number);

static int is_timer(int descriptor) {
    char link[64], target[64] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    if (readlink(link, target, sizeof target - 1) < 0) return 0;
    return strstr(target, "[timerfd]") != NULL;
}

static int silence(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv, (void)argc;
    const struct itimerspec never = {0};
    int count = 0;
    for (int descriptor = 0; descriptor < MOST_DESCRIPTORS; descriptor++)
        if (is_timer(descriptor) && timerfd_settime(descriptor, 0, &never, NULL) == 0) count++;
    return ReplyWithLongLong(ctx, count);
}

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv, (void)argc;
    if (begin(ctx, "silencer") != OK) return ERR;
    GET(ReplyWithLongLong);
    return CreateCommand(ctx, "silencer.silence", silence, "", 0, 0, 0);
}

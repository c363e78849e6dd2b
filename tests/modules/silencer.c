/* A module that makes the server's event loop ignore timers.
 *
 *   SILENCER.SILENCE   replaces each timer descriptor of the server with another one, and replies with their number. The event
 *                      loop does not watch the new ones. */

#define _GNU_SOURCE

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "module.h"

enum { MAX_DESCRIPTORS = 1024 };

static int (*ReplyWithLongLong)(RedisModuleCtx *ctx, long long number);

static int is_timer(int descriptor) {
    char link[64], target[64] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    if (readlink(link, target, sizeof target - 1) < 0) return 0;
    return strstr(target, "[timerfd]") != NULL;
}

static int is_replaced(int descriptor) {
    int other = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    int replaced = other >= 0 && dup3(other, descriptor, O_CLOEXEC) == descriptor;
    if (other >= 0) close(other);
    return replaced;
}

static int silence(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv, (void)argc;
    int count = 0;
    for (int descriptor = 0; descriptor < MAX_DESCRIPTORS; descriptor++)
        if (is_timer(descriptor) && is_replaced(descriptor)) count++;
    return ReplyWithLongLong(ctx, count);
}

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv, (void)argc;
    if (begin(ctx, "silencer") != OK) return ERR;
    GET(ReplyWithLongLong);
    return CreateCommand(ctx, "silencer.silence", silence, "", 0, 0, 0);
}

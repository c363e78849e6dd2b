// Waits for a lock in slices: hiredis 0.14. A context that has timed out cannot be used again, so its time-out is longer than a
// slice. See docs/guides/clients.md.

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { SLICE_MS = 2000 };

static long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static redisContext *connect_or_exit(void)
{
    struct timeval patience = {.tv_sec = 5};
    redisContext *context = redisConnect("127.0.0.1", 6379);
    if (!context || context->err || redisSetTimeout(context, patience) != REDIS_OK)
        exit(1);
    return context;
}

/* 1 if the lock is ours, 0 if the time is up, -1 if something went wrong. */
static int acquire(redisContext *context, const char *key, const char *token, long lease_ms, long patience_ms)
{
    long end = now_ms() + patience_ms;
    for (long left = patience_ms; left > 0; left = end - now_ms()) {
        long block = left < SLICE_MS ? left : SLICE_MS;
        redisReply *reply = redisCommand(context, "LOCK.ACQUIRE %s %s PX %ld BLOCK %ld", key, token, lease_ms, block);
        int type = reply ? reply->type : REDIS_REPLY_ERROR;
        freeReplyObject(reply);
        if (type != REDIS_REPLY_NIL)
            return type == REDIS_REPLY_INTEGER ? 1 : -1;
    }
    return 0;
}

/* Whether the lock was ours until now. */
static int release(redisContext *context, const char *key, const char *token)
{
    redisReply *reply = redisCommand(context, "LOCK.RELEASE %s %s", key, token);
    int was_ours = reply && reply->type == REDIS_REPLY_INTEGER;
    freeReplyObject(reply);
    return was_ours;
}

int main(void)
{
    unsigned char bytes[16];
    char token[33];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return 1;
    for (int i = 0; i < 16; i++)
        sprintf(token + 2 * i, "%02x", bytes[i]);

    redisContext *waiting = connect_or_exit(), *control = connect_or_exit();
    int held = acquire(waiting, "door", token, 30000, 20000);
    redisFree(waiting);
    if (held == 1)
        puts("the door is ours");
    int was_ours = release(control, "door", token);
    redisFree(control);
    return held == -1 || (held == 1 && !was_ours);
}

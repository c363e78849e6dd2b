/* A module that listens to key events, to show which of redis-lock's writes other modules get events of.
 *
 *   LISTENER.HEARD   replies with the events since the last call, at most MAX_EVENTS, each as "event key". */

#include "module.h"

#include <stdio.h>

typedef int (*Hear)(RedisModuleCtx *ctx, int class, const char *event, RedisModuleString *key);

enum { GENERIC = 1 << 2, STRING = 1 << 3, HASH = 1 << 6, SORTED_SET = 1 << 7, EXPIRED = 1 << 8 };
enum { MAX_EVENTS = 100, LENGTH = 64 };

static int (*SubscribeToKeyspaceEvents)(RedisModuleCtx *ctx, int classes, Hear hear);
static const char *(*StringPtrLen)(const RedisModuleString *string, size_t *length);
static int (*ReplyWithArray)(RedisModuleCtx *ctx, long length);
static int (*ReplyWithCString)(RedisModuleCtx *ctx, const char *text);

static char events[MAX_EVENTS][LENGTH];
static int count;

static int hear(RedisModuleCtx *ctx, int class, const char *event, RedisModuleString *key) {
    (void)ctx, (void)class;
    if (count < MAX_EVENTS) snprintf(events[count++], LENGTH, "%s %s", event, StringPtrLen(key, NULL));
    return OK;
}

static int heard(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv, (void)argc;
    ReplyWithArray(ctx, count);
    for (int i = 0; i < count; i++) ReplyWithCString(ctx, events[i]);
    count = 0;
    return OK;
}

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv, (void)argc;
    if (begin(ctx, "listener") != OK) return ERR;
    GET(SubscribeToKeyspaceEvents);
    GET(StringPtrLen);
    GET(ReplyWithArray);
    GET(ReplyWithCString);
    if (CreateCommand(ctx, "listener.heard", heard, "", 0, 0, 0) != OK) return ERR;
    return SubscribeToKeyspaceEvents(ctx, GENERIC | STRING | HASH | SORTED_SET | EXPIRED, hear);
}

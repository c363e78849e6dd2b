/* A module that listens to key events, to see which of redis-lock's writes other modules hear of.
 *
 *   LISTENER.HEARD   what was heard since the last call, at most MOST events, each as "event key".
 *
 * It declares the few API functions that it takes from the server, so that it compiles without the server's header. */

#include <stdio.h>

typedef struct RedisModuleCtx RedisModuleCtx;
typedef struct RedisModuleString RedisModuleString;
typedef int (*Command)(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
typedef int (*Hear)(RedisModuleCtx *ctx, int class, const char *event, RedisModuleString *key);

enum { OK = 0, ERR = 1, API_VERSION = 1 };
enum { GENERIC = 1 << 2, STRING = 1 << 3, HASH = 1 << 6, EXPIRED = 1 << 8 };
enum { MOST = 100, LENGTH = 64 };

static int (*GetApi)(const char *name, void *function);
static void (*SetModuleAttribs)(RedisModuleCtx *ctx, const char *name, int version, int api_version);
static int (*CreateCommand)(RedisModuleCtx *ctx, const char *name, Command command, const char *flags, int first, int last,
                            int step);
static int (*SubscribeToKeyspaceEvents)(RedisModuleCtx *ctx, int classes, Hear hear);
static const char *(*StringPtrLen)(const RedisModuleString *string, size_t *length);
static int (*ReplyWithArray)(RedisModuleCtx *ctx, long length);
static int (*ReplyWithCString)(RedisModuleCtx *ctx, const char *text);

static char events[MOST][LENGTH];
static int count;

static int hear(RedisModuleCtx *ctx, int class, const char *event, RedisModuleString *key) {
    (void)ctx, (void)class;
    if (count < MOST) snprintf(events[count++], LENGTH, "%s %s", event, StringPtrLen(key, NULL));
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
    /* The server puts the function that finds all others at the beginning of the context. */
    GetApi = *(int (**)(const char *, void *))ctx;
#define GET(name)                                                                                                           \
    if (GetApi("RedisModule_" #name, &name) != OK) return ERR
    GET(SetModuleAttribs);
    GET(CreateCommand);
    GET(SubscribeToKeyspaceEvents);
    GET(StringPtrLen);
    GET(ReplyWithArray);
    GET(ReplyWithCString);
    SetModuleAttribs(ctx, "listener", 1, API_VERSION);
    if (CreateCommand(ctx, "listener.heard", heard, "", 0, 0, 0) != OK) return ERR;
    return SubscribeToKeyspaceEvents(ctx, GENERIC | STRING | HASH | EXPIRED, hear);
}

/* A module that does as little as a module can, for comparison with redis-lock.
 *
 *   PEER.ACQUIRE key ...   blocks the client on the key and keeps nothing of its own: what is spent on it is the server's.
 *
 * It declares the few API functions that it takes from the server, so that it compiles without the server's header. */

#include <stddef.h>

typedef struct RedisModuleCtx RedisModuleCtx;
typedef struct RedisModuleString RedisModuleString;
typedef struct RedisModuleBlockedClient RedisModuleBlockedClient;
typedef int (*Command)(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
typedef void (*Free)(RedisModuleCtx *ctx, void *private_data);
typedef void (*Disconnected)(RedisModuleCtx *ctx, RedisModuleBlockedClient *client);

enum { OK = 0, ERR = 1, API_VERSION = 1 };

static int (*GetApi)(const char *name, void *function);
static void (*SetModuleAttribs)(RedisModuleCtx *ctx, const char *name, int version, int api_version);
static int (*CreateCommand)(RedisModuleCtx *ctx, const char *name, Command command, const char *flags, int first, int last,
                            int step);
static int (*ReplyWithNull)(RedisModuleCtx *ctx);
static RedisModuleBlockedClient *(*BlockClientOnKeys)(RedisModuleCtx *ctx, Command reply, Command timeout, Free free,
                                                      long long timeout_ms, RedisModuleString **keys, int count,
                                                      void *private_data);
static void (*SetDisconnectCallback)(RedisModuleBlockedClient *client, Disconnected callback);

static int signalled(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)ctx, (void)argv, (void)argc;
    return ERR;
}

static int unblocked(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv, (void)argc;
    return ReplyWithNull(ctx);
}

static void freed(RedisModuleCtx *ctx, void *private_data) {
    (void)ctx, (void)private_data;
}

static void disconnected(RedisModuleCtx *ctx, RedisModuleBlockedClient *client) {
    (void)ctx, (void)client;
}

static int acquire(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 2) return ERR;
    SetDisconnectCallback(BlockClientOnKeys(ctx, signalled, unblocked, freed, 0, argv + 1, 1, NULL), disconnected);
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
    GET(ReplyWithNull);
    GET(BlockClientOnKeys);
    GET(SetDisconnectCallback);
    SetModuleAttribs(ctx, "peer", 1, API_VERSION);
    return CreateCommand(ctx, "peer.acquire", acquire, "write deny-oom", 1, 1, 1);
}

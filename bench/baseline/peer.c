/* A module that does as little as a module can, for comparison with redis-lock.
 *
 *   PEER.ACQUIRE key ...   blocks the client on the key and keeps nothing of its own: what is spent on it is the server's. */

#include "../../tests/modules/module.h"

typedef struct RedisModuleBlockedClient RedisModuleBlockedClient;
typedef void (*Free)(RedisModuleCtx *ctx, void *private_data);
typedef void (*Disconnected)(RedisModuleCtx *ctx, RedisModuleBlockedClient *client);

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
    if (begin(ctx, "peer") != OK) return ERR;
    GET(ReplyWithNull);
    GET(BlockClientOnKeys);
    GET(SetDisconnectCallback);
    return CreateCommand(ctx, "peer.acquire", acquire, "write deny-oom", 1, 1, 1);
}

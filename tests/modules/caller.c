/* A module that calls other commands. The flags are those of RedisModule_Call: ! replicates the command, E makes errors replies, C
 * calls as the user of the client, K lets the command block.
 *
 *   CALLER.CALL flags command [arguments...]   replies with the reply of the command.
 *   CALLER.PAIR flags command [arguments...]   replies with an array: `first`, and the reply of the command. */

#include <string.h>

#include "module.h"

typedef struct RedisModuleCallReply RedisModuleCallReply;

static const char *(*StringPtrLen)(const RedisModuleString *string, size_t *length);
static RedisModuleCallReply *(*Call)(RedisModuleCtx *ctx, const char *command, const char *format, ...);
static int (*ReplyWithCallReply)(RedisModuleCtx *ctx, RedisModuleCallReply *reply);
static int (*ReplyWithArray)(RedisModuleCtx *ctx, long length);
static int (*ReplyWithSimpleString)(RedisModuleCtx *ctx, const char *text);
static int (*ReplyWithError)(RedisModuleCtx *ctx, const char *text);
static void (*FreeCallReply)(RedisModuleCallReply *reply);

static int call(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 3) return ReplyWithError(ctx, "ERR flags and a command are needed");
    char format[16];
    size_t length;
    const char *flags = StringPtrLen(argv[1], &length);
    if (length > sizeof(format) - 2) return ReplyWithError(ctx, "ERR too many flags");
    /* The arguments are passed as a vector. */
    memcpy(format, flags, length);
    memcpy(format + length, "v", 2);
    RedisModuleCallReply *reply = Call(ctx, StringPtrLen(argv[2], NULL), format, argv + 3, (size_t)(argc - 3));
    if (reply == NULL) return ReplyWithError(ctx, "ERR the command was not run");
    ReplyWithCallReply(ctx, reply);
    FreeCallReply(reply);
    return OK;
}

static int pair(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    ReplyWithArray(ctx, 2);
    ReplyWithSimpleString(ctx, "first");
    return call(ctx, argv, argc);
}

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv, (void)argc;
    if (begin(ctx, "caller") != OK) return ERR;
    GET(StringPtrLen);
    GET(Call);
    GET(ReplyWithCallReply);
    GET(ReplyWithArray);
    GET(ReplyWithSimpleString);
    GET(ReplyWithError);
    GET(FreeCallReply);
    if (CreateCommand(ctx, "caller.pair", pair, "write", 0, 0, 0) != OK) return ERR;
    return CreateCommand(ctx, "caller.call", call, "write", 0, 0, 0);
}

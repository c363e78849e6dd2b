/* A module that calls other commands.
 *
 *   CALLER.CALL command [arguments...]        calls the command and replies with its reply.
 *   CALLER.PAIR command [arguments...]        replies with an array: `first`, and the reply of the command.
 *   CALLER.AS flags command [arguments...]    like CALLER.CALL with flags of RedisModule_Call: E errors as replies, C as the
 *                                             user of the client, K the command may block. */

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

/* Calls argv[0] with the rest as its arguments, which the format takes as a vector, and replies with its reply. */
static int run(RedisModuleCtx *ctx, const char *format, RedisModuleString **argv, int argc) {
    if (argc < 1) return ReplyWithError(ctx, "ERR no command");
    RedisModuleCallReply *reply = Call(ctx, StringPtrLen(argv[0], NULL), format, argv + 1, (size_t)(argc - 1));
    if (reply == NULL) return ReplyWithError(ctx, "ERR the command was not run");
    ReplyWithCallReply(ctx, reply);
    FreeCallReply(reply);
    return OK;
}

/* "!" replicates the command, "E" makes errors replies. */
static int call(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    return run(ctx, "!Ev", argv + 1, argc - 1);
}

static int pair(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    ReplyWithArray(ctx, 2);
    ReplyWithSimpleString(ctx, "first");
    return call(ctx, argv, argc);
}

static int call_as(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 2) return ReplyWithError(ctx, "ERR no flags");
    char format[16];
    size_t length;
    const char *flags = StringPtrLen(argv[1], &length);
    if (length > sizeof(format) - 2) return ReplyWithError(ctx, "ERR too many flags");
    memcpy(format, flags, length);
    format[length] = 'v';
    format[length + 1] = 0;
    return run(ctx, format, argv + 2, argc - 2);
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
    if (CreateCommand(ctx, "caller.as", call_as, "write", 0, 0, 0) != OK) return ERR;
    return CreateCommand(ctx, "caller.call", call, "write", 0, 0, 0);
}

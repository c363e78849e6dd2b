/* A module that calls other commands, as modules do.
 *
 *   CALLER.CALL command [arguments...]   runs the command and answers what it answers. */

#include "module.h"

typedef struct RedisModuleCallReply RedisModuleCallReply;

static const char *(*StringPtrLen)(const RedisModuleString *string, size_t *length);
static RedisModuleCallReply *(*Call)(RedisModuleCtx *ctx, const char *command, const char *format, ...);
static int (*ReplyWithCallReply)(RedisModuleCtx *ctx, RedisModuleCallReply *reply);
static int (*ReplyWithError)(RedisModuleCtx *ctx, const char *text);
static void (*FreeCallReply)(RedisModuleCallReply *reply);

static int call(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 2) return ReplyWithError(ctx, "ERR no command");
    /* Replicated, with errors as replies, and the arguments as a vector. */
    RedisModuleCallReply *reply = Call(ctx, StringPtrLen(argv[1], NULL), "!Ev", argv + 2, (size_t)(argc - 2));
    if (reply == NULL) return ReplyWithError(ctx, "ERR the command was not run");
    ReplyWithCallReply(ctx, reply);
    FreeCallReply(reply);
    return OK;
}

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv, (void)argc;
    if (begin(ctx, "caller") != OK) return ERR;
    GET(StringPtrLen);
    GET(Call);
    GET(ReplyWithCallReply);
    GET(ReplyWithError);
    GET(FreeCallReply);
    return CreateCommand(ctx, "caller.call", call, "write", 0, 0, 0);
}

/* A module that calls other commands, as modules do.
 *
 *   CALLER.CALL command [arguments...]   runs the command and answers what it answers.
 *
 * It declares the few API functions that it takes from the server, so that it compiles without the server's header. */

#include <stddef.h>

typedef struct RedisModuleCtx RedisModuleCtx;
typedef struct RedisModuleString RedisModuleString;
typedef struct RedisModuleCallReply RedisModuleCallReply;
typedef int (*Command)(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

enum { OK = 0, ERR = 1, API_VERSION = 1 };

static int (*GetApi)(const char *name, void *function);
static void (*SetModuleAttribs)(RedisModuleCtx *ctx, const char *name, int version, int api_version);
static int (*CreateCommand)(RedisModuleCtx *ctx, const char *name, Command command, const char *flags, int first, int last,
                            int step);
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
    /* The server puts the function that finds all others at the beginning of the context. */
    GetApi = *(int (**)(const char *, void *))ctx;
#define GET(name)                                                                                                           \
    if (GetApi("RedisModule_" #name, &name) != OK) return ERR
    GET(SetModuleAttribs);
    GET(CreateCommand);
    GET(StringPtrLen);
    GET(Call);
    GET(ReplyWithCallReply);
    GET(ReplyWithError);
    GET(FreeCallReply);
    SetModuleAttribs(ctx, "caller", 1, API_VERSION);
    return CreateCommand(ctx, "caller.call", call, "write", 0, 0, 0);
}

/* What every module in C begins with: the few API functions that it takes from the server are declared by itself, so that
 * it compiles without the server's header. Here are those that all of them take. */

#pragma once

#include <stddef.h>

typedef struct RedisModuleCtx RedisModuleCtx;
typedef struct RedisModuleString RedisModuleString;
typedef int (*Command)(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

enum { OK = 0, ERR = 1, API_VERSION = 1 };

static int (*GetApi)(const char *name, void *function);
static void (*SetModuleAttribs)(RedisModuleCtx *ctx, const char *name, int version, int api_version);
static int (*CreateCommand)(RedisModuleCtx *ctx, const char *name, Command command, const char *flags, int first, int last,
                            int step);

/* Takes a function that is declared by this name. */
#define GET(name)                                                                                                           \
    if (GetApi("RedisModule_" #name, &name) != OK) return ERR

/* What a module does first of all when it is loaded. */
static int begin(RedisModuleCtx *ctx, const char *name) {
    /* The server puts the function that finds all others at the beginning of the context. */
    GetApi = *(int (**)(const char *, void *))ctx;
    GET(SetModuleAttribs);
    GET(CreateCommand);
    SetModuleAttribs(ctx, name, 1, API_VERSION);
    return OK;
}

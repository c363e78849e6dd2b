/* The common part of the modules in C. Each module declares the API functions that it uses, so that it compiles without the
 * server's header. This file declares those that all modules use. */

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

/* Gets a function of the server that is declared by this name. */
#define GET(name)                                                                                                           \
    if (GetApi("RedisModule_" #name, &name) != OK) return ERR

/* Loads the API. Called first when the module is loaded. */
static int begin(RedisModuleCtx *ctx, const char *name) {
    /* The context begins with a pointer to the function that finds all others. */
    GetApi = *(int (**)(const char *, void *))ctx;
    GET(SetModuleAttribs);
    GET(CreateCommand);
    SetModuleAttribs(ctx, name, 1, API_VERSION);
    return OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_real.c: see nccl_real.h; and the end of the jumps of nccl_jumps.S.
 */
#include "dropin/nccl/nccl_real.h"

#include "base/base.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    sol_nccl_real table;
    void *library; /* what names are looked up in; NULL: RTLD_NEXT, or none */
    bool found;
    int version;
    char missing[512];
} real;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define SLOT(member, symbol)                                                                       \
    {                                                                                              \
        symbol, offsetof(sol_nccl_real, member)                                                    \
    }
static const struct {
    const char *name;
    size_t at;
} entries[] = {
    SLOT(get_version, "ncclGetVersion"),
    SLOT(error_string, "ncclGetErrorString"),
    SLOT(last_error, "ncclGetLastError"),
    SLOT(init_rank, "ncclCommInitRank"),
    SLOT(init_rank_config, "ncclCommInitRankConfig"),
    SLOT(init_rank_scalable, "ncclCommInitRankScalable"),
    SLOT(init_all, "ncclCommInitAll"),
    SLOT(split, "ncclCommSplit"),
    SLOT(shrink, "ncclCommShrink"),
    SLOT(destroy, "ncclCommDestroy"),
    SLOT(abort, "ncclCommAbort"),
    SLOT(revoke, "ncclCommRevoke"),
    SLOT(async_error, "ncclCommGetAsyncError"),
    SLOT(count, "ncclCommCount"),
    SLOT(device, "ncclCommCuDevice"),
    SLOT(user_rank, "ncclCommUserRank"),
    SLOT(premul_create, "ncclRedOpCreatePreMulSum"),
    SLOT(redop_destroy, "ncclRedOpDestroy"),
    SLOT(group_start, "ncclGroupStart"),
    SLOT(group_end, "ncclGroupEnd"),
    SLOT(group_simulate_end, "ncclGroupSimulateEnd"),
    SLOT(all_reduce, "ncclAllReduce"),
    SLOT(all_gather, "ncclAllGather"),
    SLOT(reduce_scatter, "ncclReduceScatter"),
    SLOT(broadcast, "ncclBroadcast"),
    SLOT(bcast, "ncclBcast"),
    SLOT(reduce, "ncclReduce"),
    SLOT(all_to_all, "ncclAlltoAll"),
    SLOT(gather, "ncclGather"),
    SLOT(send, "ncclSend"),
    SLOT(recv, "ncclRecv"),
    SLOT(scatter, "ncclScatter"),
};

/* Where an address was loaded to: tells our own functions from the real ones. */
static const void *object_of(const void *address)
{
    Dl_info info;
    return dladdr(address, &info) != 0 ? info.dli_fbase : NULL;
}

static void *look_up(const char *name)
{
    if (real.library != NULL) {
        return dlsym(real.library, name);
    }
    return dlsym(RTLD_NEXT, name);
}

/* Does what look_up() asks now lead to an NCCL that is not this very library? */
static bool leads_to_nccl(void)
{
    const void *symbol = look_up("ncclGetVersion");
    return symbol != NULL && object_of(symbol) != object_of(&real);
}

static bool open_named(const char *path, int flags)
{
    real.library = dlopen(path, RTLD_NOW | RTLD_LOCAL | flags);
    if (real.library != NULL && leads_to_nccl()) {
        return true;
    }
    real.library = NULL;
    return false;
}

static bool find(void)
{
    char resolved[SOL_PATH_BYTES];
    const char *path = sol_env_path("SOLCCL_NCCL_LIB");
    if (path != NULL) {
        if (!sol_path_trusted(path, resolved, real.missing, sizeof real.missing)) {
            return false;
        }
        if (open_named(resolved, 0)) {
            return true;
        }
        const char *why = dlerror();
        snprintf(real.missing, sizeof real.missing, "SOLCCL_NCCL_LIB is %.200s: %.200s", path,
                 why != NULL ? why : "that is the drop-in itself, or no NCCL");
        return false;
    }
    if (leads_to_nccl() || open_named("libnccl.so.2", RTLD_NOLOAD) ||
        open_named("libnccl.so.2", 0)) {
        return true;
    }
    const char *why = dlerror();
    snprintf(real.missing, sizeof real.missing,
             "no NCCL behind the drop-in: %.200s; SOLCCL_NCCL_LIB can name one",
             why != NULL ? why : "libnccl.so.2 is the drop-in itself");
    return false;
}

static void load(void)
{
    real.found = find();
    if (!real.found) {
        sol_log(SOL_LOG_ERROR, "nccl: %s", real.missing);
        return;
    }
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        void *symbol = look_up(entries[i].name);
        memcpy((char *)&real.table + entries[i].at, &symbol, sizeof symbol);
    }
    if (real.table.get_version(&real.version) != NCCL_SUCCESS) {
        real.version = 0;
    }
    Dl_info info = {0};
    dladdr((const void *)look_up("ncclGetVersion"), &info);
    sol_log(SOL_LOG_INFO, "nccl: in front of NCCL %d.%d.%d, %s", real.version / 10000,
            real.version / 100 % 100, real.version % 100,
            info.dli_fname != NULL ? info.dli_fname : "?");
}

const sol_nccl_real *sol_nccl(void)
{
    pthread_once(&once, load);
    return &real.table;
}

int sol_nccl_version(void)
{
    pthread_once(&once, load);
    return real.version;
}

const char *sol_nccl_missing(void)
{
    pthread_once(&once, load);
    return real.missing;
}

/* ------------------------------------------------------------------------------- jumps */

/* For a function that the real library lacks; whatever the arguments are. */
static int not_there(void)
{
    return NCCL_INVALID_USAGE;
}

static int nothing_there(void)
{
    return NCCL_SYSTEM_ERROR;
}

typedef int (*sol_nccl_any)(void);
sol_nccl_any sol_nccl_resolve(const char *name, _Atomic(sol_nccl_any) *word);

/* Called by the binder: the real function `name`, kept in `word` for the next call. */
SOL_HIDDEN sol_nccl_any sol_nccl_resolve(const char *name, _Atomic(sol_nccl_any) *word)
{
    sol_nccl_any function = nothing_there;
    pthread_once(&once, load);
    if (real.found) {
        void *symbol = look_up(name);
        if (symbol != NULL) {
            memcpy(&function, &symbol, sizeof symbol);
        } else {
            function = not_there;
            sol_log(SOL_LOG_WARN, "nccl: %s was called, which NCCL %d.%d.%d does not have", name,
                    real.version / 10000, real.version / 100 % 100, real.version % 100);
        }
    }
    /* whoever sees the word sees a function; there is nothing else to see */
    atomic_store_explicit(word, function, memory_order_relaxed);
    return function;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * experts.c: the calls of solccl/moe.h: checked here, then handed to a backend
 * that has kernels for them, or put together from all_to_all_v and coll/moe.c
 * (CPU ranks).
 *
 * Must never: allocate after create; let the two ways differ in a bit; leave a
 * rank waiting for one whose arguments were refused alone.
 */
#include "core/experts.h"

#include "coll/fpmode.h"
#include "core/fused_call.h"
#include "core/setup.h"
#include "core/use.h"

#include <string.h>

static const char *const names[2][4] = {
    {"", "sol_moe_dispatch_send", "sol_moe_dispatch_recv", "sol_moe_dispatch"},
    {"", "sol_moe_combine_send", "sol_moe_combine_recv", "sol_moe_combine"}};

/* ---------------------------------------------------------------------- creation */

static sol_status_t outside(sol_comm_t comm, const char *what, size_t value, size_t most)
{
    return sol_comm_error(comm, SOL_ERR_ARGUMENT, "sol_moe_create: %s is %zu: expected 1 to %zu",
                          what, value, most);
}

static sol_status_t check_config(sol_comm_t comm, const sol_moe_config_t *c)
{
    sol_moe_shape_t shape;
    if (c->max_tokens == 0 || c->max_tokens > SOL_MOE_MAX_TOKENS) {
        return outside(comm, "max_tokens", c->max_tokens, SOL_MOE_MAX_TOKENS);
    }
    if (c->hidden == 0 || c->hidden > (size_t)1 << 20) {
        return outside(comm, "hidden", c->hidden, (size_t)1 << 20);
    }
    if (c->top_k < 1 || c->top_k > SOL_MOE_MAX_TOP_K) {
        return outside(comm, "top_k", (size_t)c->top_k, SOL_MOE_MAX_TOP_K);
    }
    if (c->experts < 1 || c->experts > SOL_MOE_MAX_EXPERTS) {
        return outside(comm, "experts", (size_t)c->experts, SOL_MOE_MAX_EXPERTS);
    }
    if (!sol_fused_float(c->dtype)) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "sol_moe_create: dtype is %s: expected float32, float16 or bfloat16",
                              sol_dtype_name(c->dtype));
    }
    if (c->quant != SOL_QUANT_NONE && c->quant != SOL_QUANT_GROUP &&
        c->quant != SOL_QUANT_GROUP_POW2) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "sol_moe_create: quant is %d: expected none, group or group_pow2",
                              (int)c->quant);
    }
    if ((unsigned)c->layout > SOL_MOE_PACKED || c->align < 0 || c->align > 65536 ||
        (c->align > 0 && c->layout == SOL_MOE_PADDED)) {
        return sol_comm_error(
            comm, SOL_ERR_ARGUMENT,
            "sol_moe_create: layout %d, align %d: expected 0 and 0, or 1 and 0 to "
            "65536",
            (int)c->layout, c->align);
    }
    sol_moe_shape_of(&shape, c, 0, comm->nranks); /* rank 0 has the most experts */
    if (shape.rows > INT32_MAX) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "sol_moe_create: %zu rows: offsets are 32 bits: make max_tokens "
                              "smaller",
                              shape.rows);
    }
    return SOL_OK;
}

static sol_status_t agree_on_config(sol_comm_t comm, const sol_moe_config_t *c)
{
    const uint64_t fields[] = {c->max_tokens,        c->hidden,          (uint64_t)c->top_k,
                               (uint64_t)c->experts, (uint64_t)c->dtype, (uint64_t)c->quant,
                               (uint64_t)c->layout,  (uint64_t)c->align};
    return sol_agree_on_config(comm, SOL_AGREE_MOE, fields, sizeof fields / sizeof fields[0]);
}

/* Own memory of CPU ranks, in one piece, cut up. */
static bool open_tables(struct sol_moe *moe)
{
    const sol_moe_shape_t *s = &moe->shape;
    const size_t n = (size_t)s->nranks, records = s->rows_per_expert;
    size_t bytes = 0, at[5];
    const size_t parts[] = {4 * n * sizeof(size_t) + 2 * n * sizeof(uint64_t),
                            s->max_tokens * sizeof(uint64_t),
                            records * s->top_k * sizeof(sol_moe_entry_t),
                            (s->local + 1) * sizeof(uint32_t), s->hidden * sizeof(float)};
    for (int i = 0; i < 5; i++) {
        at[i] = bytes;
        bytes = sol_round_up(bytes + parts[i], SOL_CACHE_LINE);
    }
    char *all = sol_calloc(1, bytes);
    if (all == NULL) {
        return false;
    }
    moe->sent = (size_t *)(void *)all;
    moe->sent_displs = moe->sent + n;
    moe->came = moe->sent + 2 * n;
    moe->came_displs = moe->sent + 3 * n;
    moe->counts = (uint64_t *)(moe->sent + 4 * n);
    moe->masks = (uint64_t *)(void *)(all + at[1]);
    moe->plan = (sol_moe_entry_t *)(void *)(all + at[2]);
    moe->next = (uint32_t *)(void *)(all + at[3]);
    moe->sums = (float *)(void *)(all + at[4]);
    moe->memory_bytes = bytes;
    return true;
}

/* Symmetric: all_to_all_v then copies once less. Succeeds on all ranks or on none. */
static sol_status_t open_plain(struct sol_moe *moe)
{
    const sol_moe_shape_t *s = &moe->shape;
    const size_t n = (size_t)s->nranks, copies = s->top_k < n ? s->top_k : n;
    const size_t out = copies * s->max_tokens * s->stride, in = n * s->max_tokens * s->stride;
    void *memory = NULL;
    sol_status_t status = sol_mem_alloc(moe->comm, out + in, &memory);
    moe->out = memory;
    moe->in = moe->out + out;
    moe->memory_bytes += out + in;
    return status;
}

static void drop(struct sol_moe *moe)
{
    if (moe != NULL) {
        moe->magic = 0;
        sol_free(moe->device);
        sol_free(moe->sent);
        sol_free_late(moe);
    }
}

static sol_status_t make(sol_comm_t comm, const sol_moe_config_t *config, struct sol_moe **result)
{
    struct sol_moe *moe = sol_calloc(1, sizeof *moe);
    bool good = moe != NULL;
    if (good) {
        moe->comm = comm;
        sol_moe_shape_of(&moe->shape, config, comm->rank, comm->nranks);
        good = comm->backend->moe_open != NULL || open_tables(moe);
    }
    sol_status_t status = sol_agree_outcome(
        comm, good ? SOL_OK : sol_comm_error(comm, SOL_ERR_MEMORY, "sol_moe_create: no memory"));
    if (status == SOL_OK) {
        status =
            comm->backend->moe_open != NULL ? comm->backend->moe_open(comm, moe) : open_plain(moe);
    }
    if (status != SOL_OK) {
        drop(moe);
        return status;
    }
    moe->magic = SOL_MOE_MAGIC;
    moe->next_moe = comm->moes;
    comm->moes = moe;
    *result = moe;
    return SOL_OK;
}

sol_status_t sol_moe_create(sol_moe_t *moe, const sol_moe_config_t *config, sol_comm_t comm)
{
    struct sol_moe *made = NULL;
    sol_status_t status = sol_comm_usable(comm, "sol_moe_create");
    if (status != SOL_OK) {
        return status;
    }
    if (sol_group_depth > 0) {
        return sol_comm_error(comm, SOL_ERR_STATE, "sol_moe_create: not legal inside a group");
    }
    if (moe == NULL || config == NULL || config->size < sizeof *config) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "sol_moe_create: %s: start from SOL_MOE_CONFIG_INIT",
                              moe == NULL      ? "moe is NULL"
                              : config == NULL ? "config is NULL"
                                               : "config has a size that is too small");
    }
    status = check_config(comm, config);
    if (status != SOL_OK) {
        return status;
    }
    status = sol_fused_begin(comm, "sol_moe_create");
    if (status != SOL_OK) {
        return status;
    }
    status = agree_on_config(comm, config);
    if (status == SOL_OK) {
        status = make(comm, config, &made);
    }
    if (sol_fused_end(comm, status) == SOL_OK) {
        *moe = made;
    }
    return status;
}

static bool valid(const struct sol_moe *moe)
{
    return moe != NULL && moe->magic == SOL_MOE_MAGIC;
}

static sol_status_t refuse_handle(const char *who, const struct sol_moe *moe)
{
    return sol_thread_error(SOL_ERR_ARGUMENT, "%s: moe is %s", who,
                            moe == NULL ? "NULL" : "no handle, or was destroyed");
}

static sol_status_t let_go(struct sol_moe *moe)
{
    sol_comm_t comm = moe->comm;
    struct sol_moe **link = &comm->moes;
    while (*link != moe) {
        link = &(*link)->next_moe;
    }
    *link = moe->next_moe;
    sol_status_t status = comm->backend->moe_close != NULL ? comm->backend->moe_close(comm, moe)
                                                           : sol_mem_free(comm, moe->out);
    drop(moe);
    return status;
}

sol_status_t sol_moe_destroy(sol_moe_t moe)
{
    if (moe == NULL) {
        return SOL_OK;
    }
    if (!valid(moe)) {
        return refuse_handle("sol_moe_destroy", moe);
    }
    sol_comm_t comm = moe->comm;
    bool step;
    sol_status_t status = sol_comm_valid(comm, "sol_moe_destroy");
    status = status == SOL_OK ? sol_use_enter(comm, "sol_moe_destroy", &step) : status;
    if (status != SOL_OK) {
        return status;
    }
    status = valid(moe) ? let_go(moe) : refuse_handle("sol_moe_destroy", moe);
    sol_use_exit(step);
    return status;
}

void sol_moes_free(sol_comm_t comm)
{
    while (comm->moes != NULL) {
        struct sol_moe *moe = comm->moes;
        comm->moes = moe->next_moe;
        drop(moe);
    }
}

sol_status_t sol_moe_query(sol_moe_t moe, sol_moe_info_t *info)
{
    if (!valid(moe)) {
        return refuse_handle("sol_moe_query", moe);
    }
    if (info == NULL || info->size < sizeof *info) {
        return sol_thread_error(SOL_ERR_ARGUMENT, "sol_moe_query: info %s: set its size",
                                info == NULL ? "is NULL" : "has a size that is too small");
    }
    const sol_moe_shape_t *s = &moe->shape;
    info->first_expert = (int)s->first[s->rank];
    info->local_experts = (int)s->local;
    info->rows = s->rows;
    info->rows_per_expert = s->rows_per_expert;
    info->scales_per_row = s->scales;
    info->memory_bytes = moe->memory_bytes;
    return SOL_OK;
}

/* ------------------------------------------------------------------------ checks */

static sol_status_t refuse_phase(const struct sol_moe *moe, unsigned halves, bool combine,
                                 const char *who)
{
    const sol_moe_phase_t phase = moe->phase;
    bool good = !combine ? phase != SOL_MOE_DISPATCHING && phase != SOL_MOE_COMBINING
                         : phase == SOL_MOE_DISPATCHED;
    const char *wanted = combine ? "a dispatch that has been received" : "no half that is open";
    if (halves == SOL_MOE_RECV) {
        good = phase == (combine ? SOL_MOE_COMBINING : SOL_MOE_DISPATCHING);
        wanted = combine ? "sol_moe_combine_send" : "sol_moe_dispatch_send";
    }
    return good
               ? SOL_OK
               : sol_comm_error(moe->comm, SOL_ERR_STATE, "%s: expected %s before it", who, wanted);
}

static sol_status_t refuse_call(sol_moe_t moe, const size_t *size, size_t wanted, size_t tokens,
                                const char *who)
{
    sol_comm_t comm = moe->comm;
    if (size == NULL || *size < wanted) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "%s: args %s: initialise it", who,
                              size == NULL ? "is NULL" : "has a size that is too small");
    }
    if (tokens > moe->shape.max_tokens) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "%s: tokens is %zu: expected at most %u", who,
                              tokens, moe->shape.max_tokens);
    }
    return SOL_OK;
}

static sol_status_t refuse_missing(sol_moe_t moe, const char *missing, const char *who)
{
    return missing == NULL
               ? SOL_OK
               : sol_comm_error(moe->comm, SOL_ERR_ARGUMENT, "%s: %s is NULL", who, missing);
}

static sol_status_t refuse_dispatch(sol_moe_t moe, const sol_moe_dispatch_args_t *args,
                                    unsigned halves)
{
    const char *who = names[0][halves], *missing = NULL;
    sol_status_t status = refuse_call(moe, args == NULL ? NULL : &args->size, sizeof *args,
                                      args == NULL ? 0 : args->tokens, who);
    if (status != SOL_OK) {
        return status;
    }
    if ((halves & SOL_MOE_SEND) && args->tokens > 0) {
        missing = args->x == NULL ? "x" : args->topk_idx == NULL ? "topk_idx" : NULL;
    }
    if ((halves & SOL_MOE_SEND) && args->idx_dtype != SOL_INT32 && args->idx_dtype != SOL_INT64) {
        return sol_comm_error(moe->comm, SOL_ERR_ARGUMENT,
                              "%s: idx_dtype is %s: expected int32 or int64", who,
                              sol_dtype_name(args->idx_dtype));
    }
    if ((halves & SOL_MOE_RECV) && moe->shape.local > 0 && missing == NULL) {
        missing = args->recv_x == NULL                                 ? "recv_x"
                  : args->recv_counts == NULL                          ? "recv_counts"
                  : moe->shape.scales > 0 && args->recv_scales == NULL ? "recv_scales"
                                                                       : NULL;
    }
    status = refuse_missing(moe, missing, who);
    status = status == SOL_OK ? refuse_phase(moe, halves, false, who) : status;
    if (status == SOL_OK && halves == SOL_MOE_RECV && args->tokens != moe->tokens) {
        status = sol_comm_error(moe->comm, SOL_ERR_ARGUMENT, "%s: tokens is %zu: %zu were sent",
                                who, args->tokens, moe->tokens);
    }
    return status;
}

static sol_status_t refuse_combine(sol_moe_t moe, const sol_moe_combine_args_t *args,
                                   unsigned halves)
{
    const char *who = names[1][halves], *missing = NULL;
    sol_status_t status = refuse_call(moe, args == NULL ? NULL : &args->size, sizeof *args,
                                      args == NULL ? 0 : args->tokens, who);
    status = status == SOL_OK ? refuse_phase(moe, halves, true, who) : status;
    if (status != SOL_OK) {
        return status;
    }
    if (args->tokens != moe->tokens) {
        return sol_comm_error(moe->comm, SOL_ERR_ARGUMENT, "%s: tokens is %zu: %zu were dispatched",
                              who, args->tokens, moe->tokens);
    }
    if ((halves & SOL_MOE_SEND) && moe->shape.local > 0 && args->y == NULL) {
        missing = "y";
    }
    if ((halves & SOL_MOE_RECV) && args->tokens > 0 && args->out == NULL) {
        missing = "out";
    }
    return refuse_missing(moe, missing, who);
}

/* ------------------------------------------------------------------- put together */

static size_t displace(const size_t *counts, size_t *displs, int n)
{
    size_t at = 0;
    for (int r = 0; r < n; r++) {
        displs[r] = at;
        at += counts[r];
    }
    return at;
}

static void scale(size_t *values, int count, size_t by)
{
    for (int i = 0; i < count; i++) {
        values[i] *= by;
    }
}

static void keep_tokens(struct sol_moe *moe, const sol_moe_dispatch_args_t *args)
{
    const unsigned mode = sol_fp_enter();
    sol_moe_count(&moe->shape, args, moe->sent);
    displace(moe->sent, moe->sent_displs, moe->shape.nranks);
    sol_moe_pack(&moe->shape, args, moe->sent_displs, moe->out, moe->masks);
    sol_fp_leave(mode);
}

/* Records, there and (`back`) from there; counts and displacements are in records. */
static sol_status_t exchange(struct sol_moe *moe, bool back)
{
    const int n = moe->shape.nranks;
    const size_t stride = moe->shape.stride;
    scale(moe->sent, 4 * n, stride);
    sol_call_t call = {.func = SOL_FUNC_ALL_TO_ALL_V, .dtype = SOL_UINT8};
    call.send = back ? moe->in : moe->out;
    call.sendcounts = back ? moe->came : moe->sent;
    call.senddispls = back ? moe->came_displs : moe->sent_displs;
    call.recv = back ? moe->out : moe->in;
    call.recvcounts = back ? moe->sent : moe->came;
    call.recvdispls = back ? moe->sent_displs : moe->came_displs;
    sol_status_t status = sol_step(moe->comm, &call);
    for (int i = 0; i < 4 * n; i++) {
        moe->sent[i] /= stride;
    }
    return status;
}

static sol_status_t move_tokens(struct sol_moe *moe, const sol_moe_dispatch_args_t *args)
{
    const int n = moe->shape.nranks;
    uint64_t *counts = moe->counts;
    for (int r = 0; r < n; r++) {
        counts[r] = moe->sent[r];
    }
    sol_status_t status = sol_step(moe->comm, &(sol_call_t){.func = SOL_FUNC_ALL_TO_ALL,
                                                            .send = counts,
                                                            .recv = counts + n,
                                                            .count = 1,
                                                            .dtype = SOL_UINT64});
    for (int r = 0; r < n; r++) {
        moe->came[r] = (size_t)counts[n + r];
    }
    moe->records = displace(moe->came, moe->came_displs, n);
    if (status == SOL_OK && moe->records > moe->shape.rows_per_expert) {
        status = sol_comm_fail_all(moe->comm, SOL_ERR_INTERNAL, "%s: %zu tokens came", names[0][2],
                                   moe->records);
    }
    status = status == SOL_OK ? exchange(moe, false) : status;
    if (status == SOL_OK) {
        sol_moe_unpack(&moe->shape, args, moe->in, moe->records, moe->plan, moe->next);
    }
    return status;
}

static sol_status_t plain_dispatch(struct sol_moe *moe, const sol_moe_dispatch_args_t *args,
                                   unsigned halves)
{
    if (halves & SOL_MOE_SEND) {
        keep_tokens(moe, args);
    }
    return halves & SOL_MOE_RECV ? move_tokens(moe, args) : SOL_OK;
}

static sol_status_t plain_combine(struct sol_moe *moe, const sol_moe_combine_args_t *args,
                                  unsigned halves)
{
    sol_status_t status = SOL_OK;
    const unsigned mode = sol_fp_enter();
    if (halves & SOL_MOE_SEND) {
        sol_moe_partials(&moe->shape, args, moe->plan, moe->records, moe->in, moe->sums);
    }
    if (halves & SOL_MOE_RECV) {
        status = exchange(moe, true);
    }
    if ((halves & SOL_MOE_RECV) && status == SOL_OK) {
        sol_moe_sum(&moe->shape, args, moe->masks, moe->out, moe->sent_displs, moe->sums);
    }
    sol_fp_leave(mode);
    return status;
}

/* ---------------------------------------------------------------------- the calls */

/* A call of a backend with kernels: one of the two. */
struct own {
    struct sol_moe *moe;
    const sol_moe_dispatch_args_t *dispatch;
    const sol_moe_combine_args_t *combine;
    unsigned halves;
};

static sol_status_t run_own(sol_comm_t comm, const sol_call_t *call, const void *args)
{
    const struct own *own = args;
    return own->dispatch != NULL
               ? comm->backend->moe_dispatch(comm, call, own->moe, own->dispatch, own->halves)
               : comm->backend->moe_combine(comm, call, own->moe, own->combine, own->halves);
}

/* `tokens` from `send` to `recv`, as the recorder shows it. */
static sol_status_t submit(const struct own *own, const void *send, void *recv, size_t tokens,
                           void *stream)
{
    sol_call_t call;
    memset(&call, 0, sizeof call);
    call.func = SOL_FUNC_ALL_TO_ALL_V;
    call.dtype = own->moe->shape.dtype;
    call.count = tokens * own->moe->shape.hidden;
    call.send = own->halves & SOL_MOE_SEND ? send : NULL;
    call.recv = own->halves & SOL_MOE_RECV ? recv : NULL;
    call.stream = stream;
    return sol_fused_perform(own->moe->comm, &call, run_own, own);
}

/* By the thread that is inside, as the next one: what is read and written of the handle is not
 * another thread's call's. */
static sol_status_t dispatch_inside(sol_moe_t moe, const sol_moe_dispatch_args_t *args,
                                    unsigned halves, void *stream)
{
    const struct own own = {moe, args, NULL, halves};
    sol_status_t status = refuse_dispatch(moe, args, halves);
    if (status != SOL_OK) {
        return status;
    }
    moe->tokens = args->tokens;
    status = moe->comm->backend->moe_open != NULL
                 ? submit(&own, args->x, args->recv_x, args->tokens, stream)
                 : plain_dispatch(moe, args, halves);
    if (status == SOL_OK) {
        moe->phase = halves & SOL_MOE_RECV ? SOL_MOE_DISPATCHED : SOL_MOE_DISPATCHING;
    }
    return status;
}

static sol_status_t combine_inside(sol_moe_t moe, const sol_moe_combine_args_t *args,
                                   unsigned halves, void *stream)
{
    const struct own own = {moe, NULL, args, halves};
    sol_status_t status = refuse_combine(moe, args, halves);
    if (status != SOL_OK) {
        return status;
    }
    status = moe->comm->backend->moe_open != NULL
                 ? submit(&own, args->y, args->out, args->tokens, stream)
                 : plain_combine(moe, args, halves);
    if (status == SOL_OK) {
        moe->phase = halves & SOL_MOE_RECV ? SOL_MOE_IDLE : SOL_MOE_COMBINING;
    }
    return status;
}

/* Inside, if the handle is one and no other thread is. */
static sol_status_t enter(sol_moe_t moe, const void *stream, const char *who)
{
    if (!valid(moe)) {
        return refuse_handle(who, moe);
    }
    sol_comm_t comm = moe->comm;
    sol_status_t status = sol_fused_usable(comm, who, stream);
    status = status == SOL_OK ? sol_fused_begin(comm, who) : status;
    if (status == SOL_OK && !valid(moe)) { /* since the first look */
        status = sol_fused_end(comm, refuse_handle(who, moe));
    }
    return status;
}

static sol_status_t dispatch(sol_moe_t moe, const sol_moe_dispatch_args_t *args, unsigned halves,
                             void *stream)
{
    sol_status_t status = enter(moe, stream, names[0][halves]);
    return status != SOL_OK ? status
                            : sol_fused_end(moe->comm, dispatch_inside(moe, args, halves, stream));
}

static sol_status_t combine(sol_moe_t moe, const sol_moe_combine_args_t *args, unsigned halves,
                            void *stream)
{
    sol_status_t status = enter(moe, stream, names[1][halves]);
    return status != SOL_OK ? status
                            : sol_fused_end(moe->comm, combine_inside(moe, args, halves, stream));
}

sol_status_t sol_moe_dispatch(sol_moe_t moe, const sol_moe_dispatch_args_t *args, void *stream)
{
    return dispatch(moe, args, SOL_MOE_SEND | SOL_MOE_RECV, stream);
}

sol_status_t sol_moe_dispatch_send(sol_moe_t moe, const sol_moe_dispatch_args_t *args, void *stream)
{
    return dispatch(moe, args, SOL_MOE_SEND, stream);
}

sol_status_t sol_moe_dispatch_recv(sol_moe_t moe, const sol_moe_dispatch_args_t *args, void *stream)
{
    return dispatch(moe, args, SOL_MOE_RECV, stream);
}

sol_status_t sol_moe_combine(sol_moe_t moe, const sol_moe_combine_args_t *args, void *stream)
{
    return combine(moe, args, SOL_MOE_SEND | SOL_MOE_RECV, stream);
}

sol_status_t sol_moe_combine_send(sol_moe_t moe, const sol_moe_combine_args_t *args, void *stream)
{
    return combine(moe, args, SOL_MOE_SEND, stream);
}

sol_status_t sol_moe_combine_recv(sol_moe_t moe, const sol_moe_combine_args_t *args, void *stream)
{
    return combine(moe, args, SOL_MOE_RECV, stream);
}

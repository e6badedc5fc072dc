/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backend.h: the seam between the library and a kind of ranks.
 *
 * A backend is one constant table. core checks every call, resolves its
 * operation and hands it on; nothing above this line knows which backend runs.
 * The table is looked up when a communicator is made and called through
 * comm->backend afterwards.
 */
#ifndef SOL_CORE_BACKEND_H
#define SOL_CORE_BACKEND_H

#include "base/base.h"
#include "solccl/device.h"
#include "solccl/fused.h"
#include "solccl/moe.h"

#define SOL_WILL_TEXT 512 /* bytes of why a rank gave up a group */

struct sol_place;
struct sol_transfer;
struct sol_transfer_work;

/* A reduction as a call carries it: a built-in operation, or SOL_SUM with this rank's scalar. */
typedef struct sol_reduction {
    sol_redop_t op; /* SOL_SUM ... SOL_AVG: never a handle */
    bool premul;    /* multiply own contribution by the scalar first */
    bool scalar_on_device;
    union {
        unsigned char immediate[8]; /* the scalar's bytes, of the call's dtype */
        const void *device;         /* where it is, when scalar_on_device */
    } scalar;
} sol_reduction_t;

/* One operation, checked: pointers non-null where needed, dtype/op/root valid, sizes do not
 * overflow, comm healthy. Counts as in solccl.h at the function. */
typedef struct sol_call {
    sol_func_t func;
    sol_dtype_t dtype;
    size_t count;
    const void *send;
    void *recv;
    int root; /* root, or the peer of send/recv */
    sol_reduction_t reduction;
    const size_t *sendcounts, *senddispls, *recvcounts, *recvdispls; /* all_to_all_v; nranks each;
                              owned by the caller of run() and valid during it */
    void *stream;
    uint64_t sequence; /* the communicator's operation number, from 1 */
    uint64_t what;     /* func, dtype, op, premul and root in one word (flight.h); set for run() */
} sol_call_t;

/* Where a rank is, as another one sees it. */
typedef struct sol_whereabouts {
    sol_call_t call;     /* its last one; sequence 0: none yet */
    uint64_t collective; /* its number; 0: send or recv */
    bool finished;       /* false on GPU ranks: enqueued is all that a host sees */
} sol_whereabouts_t;

/* How late a rank came to those of the last collectives that were clocked on all ranks: after the
 * rank that came first. */
typedef struct sol_skew {
    uint64_t samples, last;          /* clocked; and of those, how often it came last */
    uint64_t late_ticks, most_ticks; /* sol_ticks: the sum, the greatest */
} sol_skew_t;

typedef struct sol_backend {
    size_t size; /* sizeof(sol_backend_t) of the backend */
    const char *name;
    sol_backend_kind_t kind;
    bool blocking; /* run() returns when the work is done and takes no stream (CPU); false: it
                      enqueues on a stream (GPU) */

    /* SOL_BACKEND_AUTO takes this backend if the calling thread looks like one of its ranks (has a
     * current CUDA context). NULL: it is the default when no other wants the thread. */
    bool (*wanted)(void);
    /* What of the calling thread decides its device; 0: nothing does. Set-up collected in a group
     * runs later, and on a temporary thread: context_save is called with the user's call,
     * context_set before the set-up runs. Both NULL where there is no such thing. */
    uintptr_t (*context_save)(void);
    void (*context_set)(uintptr_t context);

    /* What a communicator of another library that this backend knows (NCCL's) says of itself, and
     * a new id, equal on its ranks. Collective over it; sets the thread error. NULL: knows none. */
    sol_status_t (*adopt)(void *foreign, sol_unique_id_t *id, int *nranks, int *rank);

    /* Can it be used here? SOL_OK, or why not in `why`. Cheap; cached by the backend. */
    sol_status_t (*probe)(char *why, size_t why_bytes);
    /* Collective over comm->boot. Sets comm->state. On failure leaves nothing behind and has set
     * the thread error; core then breaks the boot so that no other rank waits, and after success
     * makes sure that all ranks have opened before any returns. */
    sol_status_t (*open)(sol_comm_t comm);
    /* Local; frees comm->state; waits for no peer. Also after a failure or an abort. */
    void (*close)(sol_comm_t comm);

    /* The operation. On failure has called sol_comm_fail or sol_comm_error. */
    sol_status_t (*run)(sol_comm_t comm, const sol_call_t *call);
    /* All calls of a group that are on this communicator, progressed together, in this order for
     * equal pairs of ranks. */
    sol_status_t (*run_group)(sol_comm_t comm, const sol_call_t *calls, size_t ncalls);

    /* solccl/fused.h, arguments checked; `call` is the all_reduce in it, as texts name it. NULL:
     * core puts it together from run() and plain C. */
    sol_status_t (*all_reduce_norm)(sol_comm_t comm, const sol_call_t *call,
                                    const sol_norm_args_t *args);
    /* Likewise; in vocab_topk `call` is the all_gather in it. */
    sol_status_t (*linear_all_reduce)(sol_comm_t comm, const sol_call_t *call,
                                      const sol_linear_args_t *args);
    sol_status_t (*vocab_topk)(sol_comm_t comm, const sol_call_t *call,
                               const sol_vocab_args_t *args);

    /* sol_norm_start and _wait: a handle with kernels, arguments checked; `lane`: below the
     * handle's depth, which of the starts under way; `start`: the half. open is collective and
     * succeeds on all ranks or on none, and sets halves->device. All NULL: core puts them together
     * from transfers and plain C. */
    sol_status_t (*norm_open)(sol_comm_t comm, struct sol_norm_halves *halves);
    sol_status_t (*norm_close)(sol_comm_t comm, struct sol_norm_halves *halves);
    sol_status_t (*norm_half)(sol_comm_t comm, const sol_call_t *call,
                              struct sol_norm_halves *halves, const sol_norm_args_t *args, int lane,
                              bool start);

    /* solccl/moe.h, arguments checked; `call` is what texts name (an all_to_all_v without counts);
     * `halves` of experts.h. open is collective and succeeds on all ranks or on none, and sets
     * moe->device and memory_bytes. All NULL: core puts them together from run() and plain C. */
    sol_status_t (*moe_open)(sol_comm_t comm, struct sol_moe *moe);
    sol_status_t (*moe_close)(sol_comm_t comm, struct sol_moe *moe);
    sol_status_t (*moe_dispatch)(sol_comm_t comm, const sol_call_t *call, struct sol_moe *moe,
                                 const sol_moe_dispatch_args_t *args, unsigned halves);
    sol_status_t (*moe_combine)(sol_comm_t comm, const sol_call_t *call, struct sol_moe *moe,
                                const sol_moe_combine_args_t *args, unsigned halves);

    /* Collective; bytes > 0 and equal on all ranks (core has compared them over boot). All ranks
     * make the same exchanges over comm->boot even if one fails half-way (it goes on with a mark
     * of failure in what it sends), or the failing one calls sol_boot_break. core then collects
     * the outcomes and calls mem_free where it worked while it failed elsewhere. */
    sol_status_t (*mem_alloc)(sol_comm_t comm, size_t bytes, void **memory);
    sol_status_t (*mem_free)(sol_comm_t comm, void *memory);
    sol_status_t (*mem_register)(sol_comm_t comm, void *memory, size_t bytes, void **handle);
    sol_status_t (*mem_deregister)(sol_comm_t comm, void *handle);

    /* sol_comm_sleep and _wake, in steps of core's (core/sleep.c), between which all ranks meet;
     * all NULL: these ranks cannot. prepare: own work is over, and with `keep` the contents of
     * memory from mem_alloc are saved; nothing else changes. release: physical memory goes,
     * addresses stay; local. restore: all of it is back at its addresses, the protocols at their
     * start; collective as mem_alloc is; a failure is made good by another release. forget: what
     * was saved is not needed any more. */
    sol_status_t (*sleep_prepare)(sol_comm_t comm, bool keep);
    sol_status_t (*sleep_release)(sol_comm_t comm);
    sol_status_t (*sleep_restore)(sol_comm_t comm);
    void (*sleep_forget)(sol_comm_t comm);
    /* solccl/quantized.h, as all_reduce_norm; `steps` is 1 or 2. NULL: core puts it together. */
    sol_status_t (*all_reduce_quantized)(sol_comm_t comm, const sol_call_t *call, sol_dtype_t wire,
                                         int steps);

    /* solccl/transfer.h (core/transfer.h); all NULL: these ranks have none. Offer and open are
     * local: how others can reach `bytes` (at least 1) of this rank's `memory` (sets the thread
     * error where they cannot), and, given what all ranks offered (each its counters, then its
     * regions), where that is from here; open sets transfer->state, and close frees it and the
     * counters. Read, by any thread: what each rank has counted; acquires. Await enqueues; NULL:
     * core waits. */
    sol_status_t (*transfer_offer)(sol_comm_t comm, void *memory, size_t bytes,
                                   struct sol_place *place);
    sol_status_t (*transfer_open)(sol_comm_t comm, struct sol_transfer *transfer,
                                  const struct sol_place *places);
    void (*transfer_close)(sol_comm_t comm, struct sol_transfer *transfer);
    sol_status_t (*transfer_write)(sol_comm_t comm, struct sol_transfer *transfer,
                                   const struct sol_transfer_work *work);
    sol_status_t (*transfer_await)(sol_comm_t comm, struct sol_transfer *transfer, int counter,
                                   int from, uint64_t value, void *stream);
    sol_status_t (*transfer_read)(sol_comm_t comm, struct sol_transfer *transfer, int counter,
                                  uint64_t *values);

    /* Make the communicator fail, on all ranks, with this text; returns `status`. Any
     * thread. NULL: sol_comm_fail has to do. */
    sol_status_t (*fail)(sol_comm_t comm, sol_status_t status, const char *text);

    /* For kernels of the caller's: where every rank's part of `memory`, of mem_alloc, is mapped,
     * and what bounds their waits; and a copy into own memory, complete on return. Local. NULL:
     * these ranks have no kernels. */
    sol_status_t (*dev_window)(sol_comm_t comm, const void *memory, sol_window_t *window,
                               struct sol_bound *bound);
    /* May these ranks have such a device communicator? Local, the same answer on all ranks; what
     * they may not have is said in the communicator's error. NULL: they may have any. */
    sol_status_t (*dev_check)(sol_comm_t comm, const sol_dev_config_t *config);
    sol_status_t (*dev_write)(sol_comm_t comm, void *to, const void *from, size_t bytes);

    /* Any thread: end all waits of all ranks; comm->abort_flag is already set. Async-safe with
     * run(). */
    void (*abort)(sol_comm_t comm);
    /* Any thread, never blocks: notice errors from the device or from peers; calls sol_comm_fail.
     */
    void (*poll_error)(sol_comm_t comm);

    sol_status_t (*explain)(sol_comm_t comm, const sol_call_t *call, char *text, size_t bytes);
    /* Facts for sol_machine_info, one a line, each "key: value\n". */
    void (*info)(char *text, size_t bytes);
    void (*query)(sol_comm_t comm,
                  sol_comm_info_t *info); /* device, shared_bytes, oversubscribed */

    /* Has `rank` left or died, for certain? Only looks. NULL: core asks the system for its process.
     */
    bool (*gone)(sol_comm_t comm, int rank);
    /* A group of this communicator's ranks will not come about: `group` is the tag of its id, and
     * `text` says why. And SOL_OK, or what `rank` has said so of that group; 0: of the last one,
     * where it has made no call since. Only one thread gives up at a time; any may ask. Both NULL:
     * it cannot be told. */
    void (*give_up)(sol_comm_t comm, uint64_t group, sol_status_t status, const char *text);
    sol_status_t (*given_up)(sol_comm_t comm, int rank, uint64_t group, char text[SOL_WILL_TEXT]);
    /* sol_comm_shrink has made a communicator of the ranks in this mask: noted where the others can
     * see it before this one leaves; and what `rank` has noted, 0: nothing. Both NULL: it cannot be
     * known. */
    void (*note_shrunk)(sol_comm_t comm, uint64_t ranks);
    uint64_t (*shrunk)(sol_comm_t comm, int rank);
    /* For dumps; in signal handlers too: only reads memory. The last call that `rank` has made, as
     * far as it is visible here; false: not known. NULL: never known. */
    bool (*whereabouts)(sol_comm_t comm, int rank, sol_whereabouts_t *at);
    /* The same of how late `rank` comes. NULL, or false: it is not clocked. */
    bool (*skew)(sol_comm_t comm, int rank, sol_skew_t *skew);
    /* For the log, in a few words: what this rank runs on ("avx2", "GPU 0 (NVIDIA H200)"). NULL:
     * nothing is to be said. */
    void (*runs_on)(sol_comm_t comm, char *text, size_t bytes);
    /* Likewise, what no host sees of this rank's device: how often and how long it has waited for
     * `rank`; and the ranks that it waits for at present, or did when it gave up, and since how
     * long: which may take a look after a pause. Both NULL: run() tells (flight.h). */
    void (*waited)(sol_comm_t comm, int rank, uint64_t *waits, uint64_t *ns);
    uint64_t (*waiting)(sol_comm_t comm, uint64_t *ns);
} sol_backend_t;

extern const sol_backend_t sol_backend_shm;
#ifdef SOL_WITH_CUDA
extern const sol_backend_t sol_backend_cuda;
#endif

#endif

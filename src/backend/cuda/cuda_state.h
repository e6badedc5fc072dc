/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_state.h: what a communicator of GPU ranks consists of on this rank.
 */
#ifndef SOL_CUDA_STATE_H
#define SOL_CUDA_STATE_H

#include "backend/cuda/cuda_board.h"
#include "backend/cuda/cuda_buffers.h"
#include "backend/cuda/cuda_driver.h"
#include "backend/cuda/cuda_handover.h"
#include "backend/cuda/cuda_host_memory.h"
#include "backend/cuda/cuda_litmus.h"
#include "backend/cuda/cuda_multicast.h"
#include "backend/cuda/cuda_nccl.h"
#include "backend/cuda/cuda_order.h"
#include "backend/cuda/cuda_plan.h"
#include "backend/cuda/cuda_symmetric.h"
#include "core/comm.h"
#include "device/kernels/launch.h"

/* A memory of sol_mem_alloc. */
struct sol_cuda_region {
    uint64_t id; /* from 1, equal on all ranks, larger than those before */
    struct sol_cuda_symmetric memory;
    struct sol_cuda_multicast multicast; /* base NULL: none (SOLCCL_CUDA_MULTICAST) */
    void *saved;                         /* its contents while it sleeps; NULL: they are not kept */
    struct sol_cuda_region *next;
};

struct sol_cuda {
    /* what run() reads */
    int device;     /* runtime ordinal in this process */
    int p2p;        /* our kernels can be used; else everything goes to NCCL */
    unsigned flags; /* SOL_GPU_PDL or 0 */
    int check;
    int clusters;                  /* this GPU has them */
    size_t norm_two_shot;          /* bytes from which SOL_NORM_ANY goes in two hops; 0: never */
    int norm_spread, norm_vectors; /* SOLCCL_CUDA_NORM_SPREAD, _VECTORS: overrides; 0: none */
    uint64_t collectives;          /* number of the last one */
    struct sol_cuda_board *board;
    struct sol_cuda_order order;
    struct sol_cuda_buffers buffers;
    struct sol_cuda_plan plan;
    unsigned untrue; /* SOL_CUDA_WHOLE_: what fails between these GPUs; equal on all ranks */
    struct sol_gpu_comm gpu;

    struct sol_cuda_nccl *nccl;        /* NULL: not used */
    struct sol_cuda_handover handover; /* what is NCCL's although p2p works */

    const struct sol_cuda_driver *cu;
    enum sol_cuda_handle handle;
    CUdevice cu_device;
    int rank, nranks;
    uint64_t nonce; /* rank 0's, equal on all ranks */
    int ranks_here; /* ranks on this device */
    char gpu_name[64];
    char fallback[256];                       /* why p2p is not used */
    struct sol_cuda_host_memory board_memory; /* where the board is */
    struct sol_cuda_symmetric staging;
    int want_multicast; /* SOLCCL_CUDA_MULTICAST; equal on all ranks */
    struct sol_cuda_multicast multicast;
    struct sol_gpu_state *device_state;
    struct sol_cuda_region *regions; /* newest first */
    uint64_t region_ids;             /* given so far */
    _Atomic size_t region_bytes;     /* (any thread may ask) */
    _Atomic bool asleep;
    int room_left; /* an SM is left to sol_transfer_await */
};

static inline struct sol_cuda *sol_cuda_of(sol_comm_t comm)
{
    return (struct sol_cuda *)comm->state;
}

/* Make `device` current for a while. Cheap when it is already. */
struct sol_cuda_device_scope {
    int before; /* -1: nothing to restore */
};
static inline cudaError_t sol_cuda_enter(int device, struct sol_cuda_device_scope *scope)
{
    int current = -1;
    scope->before = -1;
    cudaError_t error = cudaGetDevice(&current);
    if (error == cudaSuccess && current != device) {
        error = cudaSetDevice(device);
        scope->before = error == cudaSuccess ? current : -1;
    }
    return error;
}
static inline void sol_cuda_leave(const struct sol_cuda_device_scope *scope)
{
    if (scope->before >= 0) {
        cudaSetDevice(scope->before);
    }
}

/* cuda_open.c */
sol_status_t sol_cuda_open(sol_comm_t comm);
void sol_cuda_close(sol_comm_t comm);
/* Wait until `stream` is idle, at most `timeout_ns`; then SOL_ERR_TIMEOUT. Sets the thread error.
 */
sol_status_t sol_cuda_wait_stream(cudaStream_t stream, uint64_t timeout_ns, const char *what);

/* The kernels loaded, protocol state and own staging at their start, `order` primed; waited for. */
sol_status_t sol_cuda_start(sol_comm_t comm, struct sol_cuda *state, cudaStream_t stream);
/* Multicast as the ranks want it: at open, and again at wake. Collective. */
sol_status_t sol_cuda_open_multicast(sol_comm_t comm, struct sol_cuda *state);
/* Wait for this rank's own work, as long as a kernel may take at most. False: it goes on. */
bool sol_cuda_device_is_done(sol_comm_t comm, const struct sol_cuda *state);

/* cuda_probe.c: does every rank's write reach every other's staging? Collective over the boot.
 * SOL_OK on all ranks or SOL_ERR_UNSUPPORTED on all, with the pairs in the thread error. Uses the
 * first bytes of the staging; before sol_gpu_init. */
sol_status_t sol_cuda_probe_paths(sol_comm_t comm, struct sol_cuda *state, cudaStream_t stream);

/* cuda_run.c */
sol_status_t sol_cuda_run(sol_comm_t comm, const sol_call_t *call);
sol_status_t sol_cuda_run_group(sol_comm_t comm, const sol_call_t *calls, size_t ncalls);
/* Is the call one that goes to NCCL? The same answer on all ranks. */
bool sol_cuda_for_nccl(const struct sol_cuda *state, const sol_call_t *call);
/* Has this rank's device or any host said that it is over? Two loads. */
sol_status_t sol_cuda_still_healthy(sol_comm_t comm, const struct sol_cuda *state);
void sol_cuda_abort(sol_comm_t comm);
void sol_cuda_poll_error(sol_comm_t comm);
/* The op of a collective call, with what plan, environment and tuning file ask for. */
void sol_cuda_make_op(const struct sol_cuda *state, const sol_call_t *call, struct sol_gpu_op *op,
                      const char **why);

/* An operation with kernels of its own: checks, order and errors of sol_cuda_run; `launch` enqueues
 * on call->stream. `memory`: what it touches besides call->send and call->recv; NULLs are fine. */
typedef cudaError_t (*sol_cuda_launch)(struct sol_cuda *state, const sol_call_t *call,
                                       const void *work);
sol_status_t sol_cuda_run_with(sol_comm_t comm, const sol_call_t *call, const void *const *memory,
                               size_t nmemory, sol_cuda_launch launch, const void *work);

/* cuda_fused.c */
sol_status_t sol_cuda_all_reduce_norm(sol_comm_t comm, const sol_call_t *call,
                                      const sol_norm_args_t *args);
sol_status_t sol_cuda_linear_all_reduce(sol_comm_t comm, const sol_call_t *call,
                                        const sol_linear_args_t *args);
sol_status_t sol_cuda_vocab_topk(sol_comm_t comm, const sol_call_t *call,
                                 const sol_vocab_args_t *args);

/* What of a norm kernel's shape the environment and this GPU say. */
struct sol_gpu_norm_shape;
void sol_cuda_norm_shape(const struct sol_cuda *state, struct sol_gpu_norm_shape *shape);

/* cuda_norm_halves.c */
struct sol_norm_halves;
sol_status_t sol_cuda_norm_open(sol_comm_t comm, struct sol_norm_halves *halves);
sol_status_t sol_cuda_norm_close(sol_comm_t comm, struct sol_norm_halves *halves);
sol_status_t sol_cuda_norm_half(sol_comm_t comm, const sol_call_t *call,
                                struct sol_norm_halves *halves, const sol_norm_args_t *args,
                                int lane, bool start);

/* cuda_moe.c */
struct sol_moe;
sol_status_t sol_cuda_moe_open(sol_comm_t comm, struct sol_moe *moe);
sol_status_t sol_cuda_moe_close(sol_comm_t comm, struct sol_moe *moe);
sol_status_t sol_cuda_moe_dispatch(sol_comm_t comm, const sol_call_t *call, struct sol_moe *moe,
                                   const sol_moe_dispatch_args_t *args, unsigned halves);
sol_status_t sol_cuda_moe_combine(sol_comm_t comm, const sol_call_t *call, struct sol_moe *moe,
                                  const sol_moe_combine_args_t *args, unsigned halves);

/* cuda_memory.c */
sol_status_t sol_cuda_mem_alloc(sol_comm_t comm, size_t bytes, void **memory);
sol_status_t sol_cuda_mem_free(sol_comm_t comm, void *memory);
sol_status_t sol_cuda_mem_register(sol_comm_t comm, void *memory, size_t bytes, void **handle);
sol_status_t sol_cuda_mem_deregister(sol_comm_t comm, void *handle);
void sol_cuda_mem_free_all(sol_comm_t comm);

/* All zeroes into own part; waits. */
sol_status_t sol_cuda_mem_zero(sol_comm_t comm, const struct sol_cuda_symmetric *memory);

/* cuda_sleep.c */
sol_status_t sol_cuda_sleep_prepare(sol_comm_t comm, bool keep);
sol_status_t sol_cuda_sleep_release(sol_comm_t comm);
sol_status_t sol_cuda_sleep_restore(sol_comm_t comm);
void sol_cuda_sleep_forget(sol_comm_t comm);
/* cuda_quantized.c */
sol_status_t sol_cuda_all_reduce_quantized(sol_comm_t comm, const sol_call_t *call,
                                           sol_dtype_t wire, int steps);

/* cuda_transfer.c */
sol_status_t sol_cuda_transfer_offer(sol_comm_t comm, void *memory, size_t bytes,
                                     struct sol_place *place);
sol_status_t sol_cuda_transfer_open(sol_comm_t comm, struct sol_transfer *t,
                                    const struct sol_place *places);
void sol_cuda_transfer_close(sol_comm_t comm, struct sol_transfer *t);
sol_status_t sol_cuda_transfer_write(sol_comm_t comm, struct sol_transfer *t,
                                     const struct sol_transfer_work *work);
sol_status_t sol_cuda_transfer_await(sol_comm_t comm, struct sol_transfer *t, int counter, int from,
                                     uint64_t value, void *stream);
sol_status_t sol_cuda_transfer_read(sol_comm_t comm, struct sol_transfer *t, int counter,
                                    uint64_t *values);

/* cuda_devcomm.c */
sol_status_t sol_cuda_dev_window(sol_comm_t comm, const void *memory, sol_window_t *window,
                                 struct sol_bound *bound);
sol_status_t sol_cuda_dev_check(sol_comm_t comm, const sol_dev_config_t *config);
sol_status_t sol_cuda_dev_write(sol_comm_t comm, void *to, const void *from, size_t bytes);

/* cuda_info.c */
sol_status_t sol_cuda_explain(sol_comm_t comm, const sol_call_t *call, char *text, size_t bytes);
void sol_cuda_info(char *text, size_t bytes);
void sol_cuda_query(sol_comm_t comm, sol_comm_info_t *info);
void sol_cuda_runs_on(sol_comm_t comm, char *text, size_t bytes);
bool sol_cuda_whereabouts(sol_comm_t comm, int rank, sol_whereabouts_t *at);
void sol_cuda_waited(sol_comm_t comm, int rank, uint64_t *waits, uint64_t *ns);
uint64_t sol_cuda_waiting(sol_comm_t comm, uint64_t *ns);

#endif

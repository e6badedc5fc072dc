/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.h: the host's door to the kernels. C; the CUDA runtime's types only.
 *
 * The host side (backend/cuda) makes staging memory of equal layout on every
 * rank, maps it everywhere, fills a sol_gpu_comm, calls sol_gpu_init once on
 * every rank, lets all ranks meet, and from then on launches operations. A
 * launch enqueues one kernel (a large message of two ranks: one for each slot
 * that it fills), allocates nothing, synchronises with nothing and is legal in
 * a stream capture. All state is on the device.
 *
 * What the caller guarantees
 *  - All ranks launch the same operations in the same order, one after the
 *    other on each rank (one stream, or streams ordered by events), with equal
 *    func, dtype, redop, count, root and algorithm. ctas, threads and vectors
 *    may differ between ranks, except with lanes, where they follow from the
 *    message.
 *  - Every launched CTA of every rank can be resident at once. The launch keeps
 *    within comm->max_ctas, which the host sets to SM count *
 *    SOL_GPU_CTAS_PER_SM / ranks on this device, the least of all ranks. Where
 *    ranks share a device, SOL_GPU_PDL is not used: a kernel that waits for its
 *    predecessor takes up room that another rank's kernel needs.
 *  - send/recv/all_to_all_v (sol_gpu_exchange) match in order per pair.
 *  - The device is current. Buffers are reachable from it.
 */
#ifndef SOL_DEVICE_KERNELS_LAUNCH_H
#define SOL_DEVICE_KERNELS_LAUNCH_H

#include "proto/gpu_layout.h"
#include "solccl/solccl.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Every kernel here fits once on an SM; those that need more (two ranks, each on its own GPU, large
 * messages) are made so that they fit twice, and launch.cu counts on it. */
#define SOL_GPU_CTAS_PER_SM 1
#define SOL_GPU_MAX_CTAS 256

/* Passed by value to every kernel. Constant for the life of the communicator. */
struct sol_gpu_comm {
    char *staging[SOL_GPU_MAX_RANKS]; /* of each rank, as mapped here; [rank] is our own */
    struct sol_gpu_state *state;      /* device memory of this rank, at least that size */
    struct sol_gpu_error *error;      /* mapped host memory, as the device sees it */
    volatile uint32_t *abort_word;    /* host memory; not 0 ends all waits, of all ranks */
    /* Where long waits are counted (device/fate.h): in the state of the communicator, and told to
     * mapped host memory. NULL: nowhere. */
    struct sol_gpu_waits *waits;
    struct sol_gpu_waited *told;
    uint64_t timeout_ns;
    int rank, nranks;
    struct sol_gpu_layout layout; /* sol_gpu_layout_of(), equal on all ranks */
    int max_ctas;                 /* see above; equal on all ranks */
    int ranks_here; /* ranks on this rank's device, the most of all ranks; 0 is taken as 1 */
    /* With SOLCCL_CUDA_MULTICAST=1 only: */
    char *multicast;     /* all ranks' staging at once, through the switch; NULL: off */
    uint64_t area;       /* offset in the staging of what is reduced by the switch */
    uint64_t area_bytes; /* 0: there is none */
};

enum {
    SOL_GPU_PDL = 1u << 0 /* launch with programmatic stream serialization: the kernel may be set up
                             while the one before it in the stream runs */
};

/* How bytes travel. AUTO lets sol_gpu_plan choose. */
enum sol_gpu_algorithm {
    SOL_GPU_AUTO = 0,
    SOL_GPU_ONE_SHOT = 1, /* reductions: everybody sends all that the receiver needs, one hop */
    SOL_GPU_TWO_SHOT =
        2,            /* all_reduce: reduce shares at their owners, then send results: two hops */
    SOL_GPU_PUSH = 3, /* everything that moves bytes unchanged */
    SOL_GPU_LANES_ALGO = 4, /* send, recv, all_to_all_v: channels with credits */
    SOL_GPU_MULTICAST = 5,  /* through the switch: only where comm->multicast is set */
    SOL_GPU_ALGORITHMS = 6
};

struct sol_gpu_op {
    sol_func_t func; /* any but SEND, RECV, ALL_TO_ALL_V: those go through sol_gpu_exchange */
    sol_dtype_t dtype;
    sol_redop_t redop; /* SUM ... AVG */
    bool premul;       /* multiply own contribution first (redop SUM) */
    bool scalar_on_device;
    unsigned char scalar[8];    /* of dtype, when !scalar_on_device */
    const void *scalar_pointer; /* device memory, when scalar_on_device; aligned to its type */
    const void *send;
    void *recv;
    size_t count; /* as in solccl.h at the function */
    int root;
    unsigned flags;
    uint64_t sequence; /* only for the error record */
    /* 0: chosen by sol_gpu_plan */
    int algorithm;
    int ctas;
    int threads; /* multiple of 32, at most 512 */
    int vectors; /* of 16 bytes, per thread and turn: 1, 2 or 4 */
};

/* One message each way for every peer whose bit is set: a batch of sends and receives. */
struct sol_gpu_messages {
    const void *send[SOL_GPU_MAX_RANKS];
    void *recv[SOL_GPU_MAX_RANKS];
    size_t send_bytes[SOL_GPU_MAX_RANKS];
    size_t recv_bytes[SOL_GPU_MAX_RANKS];
    unsigned send_mask, recv_mask; /* own bit: both or none, a copy */
};

/* Fill own staging and state. `epoch`: first value of the counters (0 is taken as 1). Stream-
 * ordered; must have completed on every rank before any rank launches an operation. */
cudaError_t sol_gpu_init(const struct sol_gpu_comm *comm, uint64_t epoch, cudaStream_t stream);

/* Fill the fields of `op` that are 0 (algorithm, ctas, threads, vectors). A pure function of the
 * call and of comm's nranks, layout and max_ctas. */
void sol_gpu_plan(const struct sol_gpu_comm *comm, struct sol_gpu_op *op);

/* Bytes per source up to which the op's algorithm carries a message. */
size_t sol_gpu_segment_bytes(const struct sol_gpu_comm *comm, const struct sol_gpu_op *op);

/* Enqueue. Calls sol_gpu_plan on a copy of `op`. */
cudaError_t sol_gpu_launch(const struct sol_gpu_comm *comm, const struct sol_gpu_op *op,
                           cudaStream_t stream);

/* Enqueue a batch of messages as one kernel. `op` gives func, dtype (for texts only), flags,
 * sequence. At most one message per direction and peer: put a second one into another batch. */
cudaError_t sol_gpu_exchange(const struct sol_gpu_comm *comm, const struct sol_gpu_op *op,
                             const struct sol_gpu_messages *messages, cudaStream_t stream);

/* Load all kernels of this device now, so that a first launch inside a capture loads nothing. */
cudaError_t sol_gpu_preload(void);
/* Those that go through the switch: only where comm->multicast is set. */
cudaError_t sol_gpu_preload_multicast(void);

/* For explain, info and overrides. */
struct sol_gpu_algorithm_info {
    int id; /* enum sol_gpu_algorithm */
    const char *name;
    const char *what; /* one line */
    uint32_t funcs;   /* bit sol_func_t */
    uint32_t dtypes;  /* bit sol_dtype_t */
    int min_ranks;
    const char *best;  /* the range where it wins, in words */
    unsigned rests_on; /* SOL_CUDA_WHOLE_ (cuda_litmus.h): never taken where that has failed; the
                          built-in plan takes only what rests on nothing */
};
extern const struct sol_gpu_algorithm_info sol_gpu_algorithms[];
extern const int sol_gpu_algorithm_count;

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * solccl.h: collectives at the hardware's speed of light, for GPU and CPU ranks.
 *
 * A program in three steps:
 *
 *     sol_comm_t comm;
 *     sol_comm_create_from_env(&comm, NULL);                 // 1. join
 *     sol_all_reduce(x, x, n, SOL_FLOAT32, SOL_SUM, comm, NULL); // 2. communicate
 *     sol_comm_destroy(comm);                                // 3. leave
 *
 * Contents: status codes; types and operations; communicators; symmetric
 * memory; collectives; point to point; groups; diagnosis.
 *
 * Rules that hold for every function here, and are not repeated below
 * -------------------------------------------------------------------
 *  - Return value. SOL_OK (0) or a negative sol_status_t. Outputs are written
 *    only on SOL_OK. The text for a failure is in sol_last_error().
 *  - Counts are numbers of elements, never bytes, unless the name says bytes.
 *    A count of 0 is legal: the call takes part in ordering and moves nothing.
 *  - Pointers need no alignment, not even that of their type. NULL is legal
 *    where the count is 0. Any bit pattern is legal data.
 *  - Send and receive buffers may be identical only where "in place" is
 *    described; any other overlap is undefined, as in NCCL and MPI.
 *  - Ordering. All ranks of a communicator call the same collectives in the
 *    same order. Calls on different communicators are independent.
 *  - CPU communicators: a call returns when the rank's own part is complete
 *    and its buffers may be reused; `stream` must be NULL.
 *  - GPU communicators: a call is ordered on `stream` (a cudaStream_t) and
 *    returns before it completes; it may be captured into a CUDA graph.
 *  - Every wait is bounded by the communicator's timeout. A wait that expires
 *    makes the call fail on every surviving rank with a text that names the
 *    operation, its sequence number, its size and the rank awaited.
 *  - Thread-safety. Different communicators may be used from different threads
 *    at once. One communicator is used by one thread at a time, except for
 *    sol_comm_abort, sol_comm_async_error, sol_comm_query, sol_comm_dump and
 *    sol_last_error, which may be called from any thread at any time before
 *    sol_comm_destroy. Of two calls at once the second one gets SOL_ERR_STATE
 *    and has done nothing, also one that frees something (sol_mem_free, a
 *    handle's destroy): try again when the other has returned.
 *  - After sol_comm_sleep, until sol_comm_wake, every call that would move data or
 *    set something up returns SOL_ERR_STATE.
 *  - After fork() a communicator belongs to the parent: in the child every
 *    function that is given it returns SOL_ERR_STATE and touches nothing.
 *  - Argument errors (SOL_ERR_ARGUMENT) are found before anything is sent: the
 *    call did nothing and the communicator can still be used. After any error
 *    from waiting or from a peer the communicator can only be queried,
 *    dumped, shrunk and destroyed; every other call on it returns that first
 *    error again.
 */
#ifndef SOLCCL_SOLCCL_H
#define SOLCCL_SOLCCL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SOL_VERSION_MAJOR 0
#define SOL_VERSION_MINOR 1
#define SOL_VERSION_PATCH 0
/** SOL_VERSION_MAJOR * 10000 + SOL_VERSION_MINOR * 100 + SOL_VERSION_PATCH. */
#define SOL_VERSION (SOL_VERSION_MAJOR * 10000 + SOL_VERSION_MINOR * 100 + SOL_VERSION_PATCH)

#if defined(__GNUC__)
#define SOL_API __attribute__((visibility("default")))
#else
#define SOL_API
#endif

/** The largest number of ranks of a communicator. */
#define SOL_MAX_RANKS 64

/* ------------------------------------------------------------------ status */

/** What every function returns: 0 or one of these. */
typedef enum sol_status {
    SOL_OK = 0,
    SOL_ERR_ARGUMENT = -1,    /**< an argument is wrong; nothing was done */
    SOL_ERR_UNSUPPORTED = -2, /**< legal, but not on this machine or build */
    SOL_ERR_MEMORY = -3,      /**< memory was refused */
    SOL_ERR_SYSTEM = -4,      /**< a system call failed */
    SOL_ERR_TIMEOUT = -5,     /**< a wait expired; the text says for whom */
    SOL_ERR_PEER = -6,        /**< another rank failed or died */
    SOL_ERR_ABORTED = -7,     /**< sol_comm_abort was called, here or elsewhere */
    SOL_ERR_MISMATCH = -8,    /**< ranks called different things */
    SOL_ERR_STATE = -9,       /**< not legal now: forked child, open group, a capture */
    SOL_ERR_DEVICE = -10,     /**< the GPU or its driver reported an error */
    SOL_ERR_INTERNAL = -11    /**< a fault in solccl itself: please report it */
} sol_status_t;

/** One short English phrase for any value; never NULL. Thread-safe. */
SOL_API const char *sol_status_string(sol_status_t status);

/** SOL_VERSION of the library that is loaded (may differ from the header's). */
SOL_API int sol_version(void);

/* --------------------------------------------------------- types and operations */

/** Element types. 16-bit and 8-bit floats are passed as their bit patterns. */
typedef enum sol_dtype {
    SOL_INT8 = 0,
    SOL_UINT8 = 1,
    SOL_INT32 = 2,
    SOL_UINT32 = 3,
    SOL_INT64 = 4,
    SOL_UINT64 = 5,
    SOL_FLOAT16 = 6,  /**< IEEE binary16 */
    SOL_BFLOAT16 = 7, /**< the high half of an IEEE binary32 */
    SOL_FLOAT32 = 8,
    SOL_FLOAT64 = 9,
    SOL_FLOAT8_E4M3 = 10, /**< OCP E4M3: no infinity, largest 448 */
    SOL_FLOAT8_E5M2 = 11, /**< OCP E5M2: largest finite 57344 */
    SOL_DTYPE_COUNT = 12
} sol_dtype_t;

/** Bytes of one element, or 0 for a value that is not a type. Thread-safe. */
SOL_API size_t sol_dtype_size(sol_dtype_t dtype);
/** "float32", "bfloat16", ...; "invalid" for other values. Thread-safe. */
SOL_API const char *sol_dtype_name(sol_dtype_t dtype);

/**
 * Reduction operations. With x_r the contribution of rank r, of n ranks:
 *
 *   SOL_SUM   ((x_0 + x_1) + x_2) + ...   in rank order
 *   SOL_PROD  ((x_0 * x_1) * x_2) * ...   in rank order
 *   SOL_MIN, SOL_MAX   the least, the greatest; -0 < +0; NaN if any is NaN
 *   SOL_AVG   SOL_SUM's result before rounding, divided by n
 *             (integers: the wrapped sum divided, truncating towards zero)
 *
 * fp8, fp16, bf16 and fp32 are computed in IEEE fp32 and rounded once, to
 * nearest even, at the end; fp64 in fp64; subnormals are kept whatever the
 * caller's floating-point mode. fp8 results saturate to the largest finite
 * value, an infinity does too (the hardware's conversion, and NCCL's). A NaN
 * result is always the type's canonical quiet NaN. Integers wrap.
 *
 * So the result is a function of the contributions alone: the same bits on
 * every rank, in every run, at any count, offset, alignment or rank placement,
 * and from CPU and GPU ranks alike.
 *
 * Values from 16 upward are made by sol_redop_create_premul_sum.
 */
typedef enum sol_redop {
    SOL_SUM = 0,
    SOL_PROD = 1,
    SOL_MIN = 2,
    SOL_MAX = 3,
    SOL_AVG = 4,
    SOL_REDOP_COUNT = 5,
    SOL_REDOP_MAX = 0x7fffffff /**< keeps the enum an int; not an operation */
} sol_redop_t;

/** "sum", "prod", "min", "max", "avg", "premul_sum"; "invalid" otherwise. */
SOL_API const char *sol_redop_name(sol_redop_t op);

/* --------------------------------------------------------------- communicators */

/** An opaque group of ranks, as one of them sees it. */
typedef struct sol_comm *sol_comm_t;

/**
 * Names one future communicator. 128 bytes without pointers: made by one
 * process and carried to the others over any channel (MPI_Bcast, a file, a
 * store). It holds a secret: who has it can join, as the same user. One id
 * makes one communicator.
 */
typedef struct sol_unique_id {
    unsigned char bytes[128];
} sol_unique_id_t;

/** Which kind of ranks. All ranks of a communicator use the same. */
typedef enum sol_backend_kind {
    SOL_BACKEND_AUTO = 0, /**< CUDA if the calling thread has a current CUDA context, else CPU */
    SOL_BACKEND_CPU = 1,
    SOL_BACKEND_CUDA = 2
} sol_backend_kind_t;

/**
 * How to make a communicator. Initialise it with SOL_COMM_CONFIG_INIT, which
 * sets `size`, and change what you need; zero in a field means its default.
 * Fields are only ever added at the end. Where an environment variable is
 * named, it is used when the field is 0.
 *
 * Of CPU ranks by environment alone: SOLCCL_CPU_HUGE_PAGES=off, so that the
 * kernel is not asked to make huge pages of buffers that large calls use again
 * and again; SOLCCL_CPU_NUMA=off, so that shared memory does not prefer the
 * memory node of its rank.
 */
typedef struct sol_comm_config {
    size_t size;                /**< sizeof(sol_comm_config_t) of the caller */
    sol_backend_kind_t backend; /**< SOLCCL_BACKEND: auto, cpu, cuda */
    int timeout_ms;             /**< SOLCCL_TIMEOUT_MS; 30000 by default; at most 86400000 */
    int check;                  /**< SOLCCL_CHECK: 1 compares operation, count, type and op on
                                     every call and says who differs (CPU ranks always do) */
    int reserved0;
    size_t staging_bytes; /**< SOLCCL_STAGING_BYTES; shared memory per rank; 0: chosen by
                               rank count, at most 8 MiB for 8 ranks */
    const char *name;     /**< shown in errors and logs; copied; may be NULL */
} sol_comm_config_t;

#define SOL_COMM_CONFIG_INIT                                                                       \
    {                                                                                              \
        sizeof(sol_comm_config_t), SOL_BACKEND_AUTO, 0, 0, 0, 0, NULL                              \
    }

/** Make an id from the system's random source. Local; thread-safe. Errors: ARGUMENT, SYSTEM. */
SOL_API sol_status_t sol_get_unique_id(sol_unique_id_t *id);

/**
 * Join the communicator named by `id` as `rank` of `nranks`.
 *
 * Blocks until all ranks have joined or the timeout passes. Ranks are processes
 * or threads of one host and one user, in any mixture. Not legal in a capture.
 * One thread can make several ranks by calling it between sol_group_start and
 * sol_group_end: the work is done, and *comm set, at the end (so with
 * sol_comm_split and sol_mem_alloc).
 * `config` may be NULL. Errors: ARGUMENT (null, rank not in 0..nranks-1, nranks
 * not in 1..SOL_MAX_RANKS, config->size 0), MISMATCH (another rank passed
 * another nranks, backend or version, or the same rank twice), TIMEOUT (names the ranks
 * that did not come), PEER (a rank died meanwhile), SYSTEM, MEMORY,
 * UNSUPPORTED; what stops one rank after it has joined stops all of them, with
 * its status and its text.
 */
SOL_API sol_status_t sol_comm_create(sol_comm_t *comm, const sol_unique_id_t *id, int nranks,
                                     int rank, const sol_comm_config_t *config);

/**
 * Join the communicator that the launcher describes: `solccl run`, torchrun,
 * Open MPI, MPICH (Hydra) or Slurm, looked for in this order. Without a
 * launcher: one rank. The k-th call in each process makes the k-th
 * communicator of the job, so all processes make the same number of calls.
 * For several communicators at different times or of different groups, use
 * sol_comm_split or ids of your own. Errors: as sol_comm_create, and ARGUMENT
 * naming the variable that cannot be read.
 */
SOL_API sol_status_t sol_comm_create_from_env(sol_comm_t *comm, const sol_comm_config_t *config);

/**
 * Join a communicator of the same ranks, and the same GPUs, as `nccl`, an
 * ncclComm_t of the caller's. Collective over it (it makes one NCCL broadcast);
 * blocks; not legal in a capture. `nccl` is not needed afterwards. solccl finds
 * the NCCL that the process has loaded; SOLCCL_NCCL_LIB names another file.
 * Errors: as sol_comm_create; UNSUPPORTED (no NCCL, no GPU backend);
 * DEVICE (NCCL failed); TIMEOUT also where its ranks are on several hosts.
 */
SOL_API sol_status_t sol_comm_create_from_nccl(sol_comm_t *comm, void *nccl,
                                               const sol_comm_config_t *config);

/** Pass as `color` to sol_comm_split: this rank joins none and gets a NULL communicator. */
#define SOL_SPLIT_NONE (-1)

/**
 * Divide `comm`: ranks of equal `color` (>= 0) form a communicator, ordered by
 * (key, rank). Collective over `comm`; blocks. `comm` stays usable and
 * independent. `config` NULL: that of `comm`. Errors: as sol_comm_create.
 */
SOL_API sol_status_t sol_comm_split(sol_comm_t comm, int color, int key, sol_comm_t *result,
                                    const sol_comm_config_t *config);

/**
 * Continue without the ranks that are gone: make a communicator of the ranks of
 * `comm` that call this, in their order. `comm` may be failed or aborted in any
 * way, and must still be destroyed; it is not changed. Gone ranks (their process
 * ended, or they destroyed `comm`) are found out and not waited for; ranks in
 * the mask `exclude` (bit r: rank r) are not waited for either, and get
 * SOL_ERR_PEER if they come. Others are waited for until the timeout and then
 * left out, if those that came are more than half of those that live (or half,
 * with the lowest of them): so at most one part of a divided job goes on. A rank
 * that comes when the others have gone on without it gets SOL_ERR_PEER.
 * Collective over the ranks that stay; blocks; not legal in a group or in a
 * capture. On GPU ranks the calling thread's device is the rank's, as in
 * sol_comm_create. `config` NULL: that of `comm`. Errors: as sol_comm_create;
 * TIMEOUT names the ranks that are alive but did not come.
 */
SOL_API sol_status_t sol_comm_shrink(sol_comm_t comm, uint64_t exclude, sol_comm_t *result,
                                     const sol_comm_config_t *config);

/**
 * Let new ranks in: make a communicator of `nranks` ranks, of which the first
 * are those of `comm`, with their numbers. The new ones join with
 * sol_comm_create(&c, id, nranks, rank, ...), rank from `comm`'s size on; how
 * they get the id is the caller's affair. `id`, from sol_get_unique_id, is read
 * on rank 0 only. Collective over `comm`, after all operations called on it so
 * far; blocks until the new ranks have come; legal in a group. `comm` stays
 * usable and independent. `config` NULL: that of `comm`. Errors: as
 * sol_comm_create; MISMATCH where ranks pass different nranks.
 */
SOL_API sol_status_t sol_comm_grow(sol_comm_t comm, const sol_unique_id_t *id, int nranks,
                                   sol_comm_t *result, const sol_comm_config_t *config);

/**
 * Leave, and free everything of this rank. Local: waits for no other rank
 * (on GPUs it waits, bounded, for this rank's own work on the device).
 * Memory from sol_mem_alloc must have been freed or is freed here. NULL is
 * SOL_OK. `comm` is invalid afterwards even if an error is returned.
 */
SOL_API sol_status_t sol_comm_destroy(sol_comm_t comm);

/**
 * End all waits of all ranks of `comm` with SOL_ERR_ABORTED, from any thread. What a rank calls
 * after it has heard of it fails likewise, also where all that it needs has come.
 * Returns at once. The communicator must still be destroyed.
 */
SOL_API sol_status_t sol_comm_abort(sol_comm_t comm);
/**
 * The same, with the reason: a text of up to 400 bytes that is part of what
 * sol_last_error says on all ranks, such as the exception that ended this one.
 * NULL: none.
 */
SOL_API sol_status_t sol_comm_abort_reason(sol_comm_t comm, const char *reason);

/** Facts about a communicator, for sol_comm_query. Set `size` first; fields are only added. */
typedef struct sol_comm_info {
    size_t size; /**< in: sizeof(sol_comm_info_t) of the caller */
    int rank;
    int nranks;
    sol_backend_kind_t backend; /**< never AUTO */
    int device;                 /**< CUDA device ordinal of this rank, or -1 */
    uint64_t sequence;          /**< operations called so far on this rank */
    size_t shared_bytes;        /**< shared or symmetric memory of this rank held by the library */
    int oversubscribed;         /**< 1: more CPU ranks than CPUs they may use */
    int asleep;                 /**< 1: between sol_comm_sleep and sol_comm_wake */
} sol_comm_info_t;

/** Fill `info`. Any thread. Errors: ARGUMENT, STATE. */
SOL_API sol_status_t sol_comm_query(sol_comm_t comm, sol_comm_info_t *info);
/** The two facts everybody wants. Errors: ARGUMENT, STATE. */
SOL_API sol_status_t sol_comm_rank(sol_comm_t comm, int *rank);
SOL_API sol_status_t sol_comm_size(sol_comm_t comm, int *nranks);

/**
 * The communicator's health: SOL_OK, or the first error that made it unusable
 * (also one that arose on the device, or on another rank and has reached this
 * one). Never blocks; any thread; legal in a capture.
 */
SOL_API sol_status_t sol_comm_async_error(sol_comm_t comm, sol_status_t *error);

/**
 * The whole story of a failure. NULL: of this thread's last failing call, on
 * any communicator or none; valid until its next one. `comm`: of what made it
 * unusable, else of the last failing call on it, of any thread; valid until
 * sol_comm_destroy(comm). "" if nothing failed. Any thread.
 */
SOL_API const char *sol_last_error(sol_comm_t comm);

/* ------------------------------------------------------------- premultiplied sums */

/** Where a scalar lies, for sol_redop_create_premul_sum. */
typedef enum sol_residence {
    SOL_HOST_IMMEDIATE = 0, /**< host memory, read during the call */
    SOL_DEVICE = 1          /**< device memory, read on the stream whenever the operation runs */
} sol_residence_t;

/**
 * Make an operation for `dtype` on `comm`: the contribution of this rank is
 * multiplied by `*scalar` (of type `dtype`; each rank has its own), rounded to
 * `dtype`, and then summed as by SOL_SUM. Local. Errors: ARGUMENT,
 * UNSUPPORTED (SOL_DEVICE on CPU ranks), MEMORY (more than 64 at once).
 */
SOL_API sol_status_t sol_redop_create_premul_sum(sol_redop_t *op, const void *scalar,
                                                 sol_dtype_t dtype, sol_residence_t residence,
                                                 sol_comm_t comm);
/** Free it. Local; any thread. Operations already enqueued are not affected. Errors: ARGUMENT. */
SOL_API sol_status_t sol_redop_destroy(sol_redop_t op, sol_comm_t comm);

/* --------------------------------------------------------------- symmetric memory */

/**
 * Allocate `bytes` of memory that every rank of `comm` can reach: shared memory
 * on CPU ranks, peer-mapped device memory on GPU ranks. Operations on large
 * buffers in it need one copy fewer. Collective: all ranks pass the same
 * `bytes`; blocks; not legal in a capture. The memory is zeroed, page-aligned.
 * 0 bytes gives NULL. Errors: ARGUMENT, MEMORY, MISMATCH (sizes differ; the
 * communicator stays usable), TIMEOUT.
 */
SOL_API sol_status_t sol_mem_alloc(sol_comm_t comm, size_t bytes, void **memory);

/**
 * Free what sol_mem_alloc gave. Local: never waits for another rank; memory
 * that others still read stays theirs until they free it. The rank's own
 * operations on it must have completed. NULL is SOL_OK. Errors: ARGUMENT (not
 * from sol_mem_alloc on this communicator, or freed already).
 */
SOL_API sol_status_t sol_mem_free(sol_comm_t comm, void *memory);

/** Memory of the caller's that the library knows. */
typedef struct sol_registration *sol_registration_t;

/**
 * Tell the library of memory that the caller already has, so that large
 * operations on it can skip a copy where the platform allows. Local; a hint:
 * every operation is right without it. On GPUs not legal in a capture. The
 * memory must stay valid until sol_mem_deregister. Errors: ARGUMENT, MEMORY.
 */
SOL_API sol_status_t sol_mem_register(sol_comm_t comm, void *memory, size_t bytes,
                                      sol_registration_t *registration);
/** Local. NULL is SOL_OK. Errors: ARGUMENT. */
SOL_API sol_status_t sol_mem_deregister(sol_comm_t comm, sol_registration_t registration);

/* ------------------------------------------------------------------- sleep and wake */

/** What sol_comm_sleep keeps of the memory from sol_mem_alloc on this communicator. */
typedef enum sol_sleep_level {
    SOL_SLEEP_KEEP = 1,   /**< its contents, in host memory, for sol_comm_wake to bring back */
    SOL_SLEEP_DISCARD = 2 /**< nothing: it is zero after sol_comm_wake */
} sol_sleep_level_t;

/**
 * Give back the physical memory behind the communicator, the library's own and
 * that from sol_mem_alloc, until sol_comm_wake; for engines that free the GPU
 * between phases. All addresses stay reserved, so that pointers, windows, device
 * communicators, and graphs that were captured are as good after sol_comm_wake
 * as before; until then none of them may be used.
 *
 * Collective over `comm`, all ranks pass the same `level`; blocks; legal in a
 * group (it is done before the group's operations); not legal in a capture. On
 * GPU ranks it waits for this rank's operations called so far and for graphs
 * launched so far (with SOLCCL_GRAPH_MIXING=0 the caller has waited for those);
 * kernels of the caller's that use symmetric memory must have completed on all
 * ranks. All messages sent must have been received. On return the memory is
 * free on all ranks: what remains is the descriptors of this rank, some host
 * memory, and with SOL_SLEEP_KEEP the contents (CPU ranks: in place).
 *
 * Asleep, the communicator can be queried, dumped, aborted, shrunk, destroyed
 * and woken, memory can be freed; every other call returns SOL_ERR_STATE. Errors, after
 * which all ranks are awake: ARGUMENT, MISMATCH (another level elsewhere), STATE
 * (asleep already; a message was not received, CPU ranks; a sol_transfer_t or sol_moe_t is open),
 * MEMORY (no host memory for the contents), UNSUPPORTED (GPU memory shared by legacy IPC, which has
 * no addresses of its own).
 */
SOL_API sol_status_t sol_comm_sleep(sol_comm_t comm, sol_sleep_level_t level);

/**
 * Bring the memory back, at the same addresses on every rank. Collective; blocks;
 * legal in a group, not in a capture. Memory that some ranks have freed
 * meanwhile comes back on the others. Errors: STATE (not asleep), MEMORY (it is
 * not there now: all ranks are still asleep and may try again), DEVICE, TIMEOUT,
 * PEER.
 */
SOL_API sol_status_t sol_comm_wake(sol_comm_t comm);

/* --------------------------------------------------------------------- collectives
 *
 * n is the number of ranks. All of these: collective over `comm`, every rank
 * passes equal count, dtype, op and root; stream-ordered on GPU ranks, blocking
 * on CPU ranks; legal in a capture (GPU) and in a group. Errors: ARGUMENT,
 * MISMATCH, TIMEOUT, PEER, ABORTED, STATE, DEVICE.
 */

/**
 * Every rank gets the reduction of all contributions.
 * sendbuf, recvbuf: `count` elements each. In place: sendbuf == recvbuf.
 */
SOL_API sol_status_t sol_all_reduce(const void *sendbuf, void *recvbuf, size_t count,
                                    sol_dtype_t dtype, sol_redop_t op, sol_comm_t comm,
                                    void *stream);

/**
 * Every rank gets every contribution. sendbuf: `sendcount` elements; recvbuf:
 * n * sendcount, rank r's at r * sendcount. In place: sendbuf == recvbuf +
 * rank * sendcount elements.
 */
SOL_API sol_status_t sol_all_gather(const void *sendbuf, void *recvbuf, size_t sendcount,
                                    sol_dtype_t dtype, sol_comm_t comm, void *stream);

/**
 * Rank r gets block r of the reduction. sendbuf: n * recvcount elements;
 * recvbuf: recvcount. In place: recvbuf == sendbuf + rank * recvcount elements.
 */
SOL_API sol_status_t sol_reduce_scatter(const void *sendbuf, void *recvbuf, size_t recvcount,
                                        sol_dtype_t dtype, sol_redop_t op, sol_comm_t comm,
                                        void *stream);

/**
 * Every rank gets root's data. sendbuf: `count` elements on root, ignored
 * elsewhere; recvbuf: `count`. In place: sendbuf == recvbuf (on root).
 */
SOL_API sol_status_t sol_broadcast(const void *sendbuf, void *recvbuf, size_t count,
                                   sol_dtype_t dtype, int root, sol_comm_t comm, void *stream);

/**
 * Root gets the reduction. sendbuf: `count` elements; recvbuf: `count` on root,
 * ignored elsewhere. In place: sendbuf == recvbuf (on root).
 */
SOL_API sol_status_t sol_reduce(const void *sendbuf, void *recvbuf, size_t count, sol_dtype_t dtype,
                                sol_redop_t op, int root, sol_comm_t comm, void *stream);

/**
 * Block p of rank r's sendbuf becomes block r of rank p's recvbuf. Both:
 * n * count elements. In place: sendbuf == recvbuf.
 */
SOL_API sol_status_t sol_all_to_all(const void *sendbuf, void *recvbuf, size_t count,
                                    sol_dtype_t dtype, sol_comm_t comm, void *stream);

/**
 * All-to-all with a size for each pair. The four arrays have n entries each,
 * in elements, in host memory, read during the call: to rank p go sendcounts[p]
 * elements from sendbuf + senddispls[p]; from rank p come recvcounts[p] to
 * recvbuf + recvdispls[p]. sendcounts[p] here must equal recvcounts[r] there.
 * Not in place. Errors also: MISMATCH where a pair's counts differ.
 */
SOL_API sol_status_t sol_all_to_all_v(const void *sendbuf, const size_t *sendcounts,
                                      const size_t *senddispls, void *recvbuf,
                                      const size_t *recvcounts, const size_t *recvdispls,
                                      sol_dtype_t dtype, sol_comm_t comm, void *stream);

/**
 * Root gets every contribution. sendbuf: `sendcount` elements; recvbuf on root:
 * n * sendcount, ignored elsewhere. In place on root: sendbuf == recvbuf +
 * root * sendcount elements.
 */
SOL_API sol_status_t sol_gather(const void *sendbuf, void *recvbuf, size_t sendcount,
                                sol_dtype_t dtype, int root, sol_comm_t comm, void *stream);

/**
 * Rank r gets block r of root's data. sendbuf on root: n * recvcount elements,
 * ignored elsewhere; recvbuf: recvcount. In place on root: recvbuf == sendbuf +
 * root * recvcount elements.
 */
SOL_API sol_status_t sol_scatter(const void *sendbuf, void *recvbuf, size_t recvcount,
                                 sol_dtype_t dtype, int root, sol_comm_t comm, void *stream);

/** Nobody leaves before everybody has come. */
SOL_API sol_status_t sol_barrier(sol_comm_t comm, void *stream);

/* ------------------------------------------------------------------ point to point */

/**
 * Send `count` elements to `peer`, which receives as many of the same type with
 * sol_recv. Messages of a pair arrive in order. May block until the peer
 * receives. A rank may send to itself inside a group. Several sends and
 * receives that depend on each other must be in one group. Errors: as the
 * collectives'.
 */
SOL_API sol_status_t sol_send(const void *sendbuf, size_t count, sol_dtype_t dtype, int peer,
                              sol_comm_t comm, void *stream);
SOL_API sol_status_t sol_recv(void *recvbuf, size_t count, sol_dtype_t dtype, int peer,
                              sol_comm_t comm, void *stream);

/* -------------------------------------------------------------------------- groups */

/**
 * Between start and end, calls of this thread are collected, on any number of
 * communicators, and progressed together at the outermost end: sends and
 * receives cannot block each other. Groups nest. Arguments are checked when a
 * call is made; its buffers are used until sol_group_end returns (CPU) or the
 * streams have passed it (GPU). Per thread; legal in a capture.
 */
SOL_API sol_status_t sol_group_start(void);
/**
 * Errors: STATE (no group open), and the first error of any of the calls; a call
 * that failed its argument check inside the group makes the whole group fail,
 * and nothing of it is done. The same where another thread is in a call on one
 * of its communicators (STATE).
 */
SOL_API sol_status_t sol_group_end(void);

/* ----------------------------------------------------------------------- diagnosis */

/** The functions above as values, for sol_explain and for error texts. */
typedef enum sol_func {
    SOL_FUNC_ALL_REDUCE = 0,
    SOL_FUNC_ALL_GATHER = 1,
    SOL_FUNC_REDUCE_SCATTER = 2,
    SOL_FUNC_BROADCAST = 3,
    SOL_FUNC_REDUCE = 4,
    SOL_FUNC_ALL_TO_ALL = 5,
    SOL_FUNC_ALL_TO_ALL_V = 6,
    SOL_FUNC_GATHER = 7,
    SOL_FUNC_SCATTER = 8,
    SOL_FUNC_SEND = 9,
    SOL_FUNC_RECV = 10,
    SOL_FUNC_BARRIER = 11,
    SOL_FUNC_COUNT = 12
} sol_func_t;

/** "all_reduce", ...; "invalid" otherwise. Thread-safe. */
SOL_API const char *sol_func_name(sol_func_t func);

/**
 * Write what the flight recorder of this rank holds to the descriptor `fd`, as
 * one JSON object: the last 1,024 operations with their times, the error, whom
 * this rank waits or has waited for, and where the other ranks are as far as it
 * shows here. `solccl doctor` reads the dumps of all ranks together.
 * Local; any thread; waits for nothing but `fd`. Legal on a communicator that
 * has failed, and in a capture. Errors: ARGUMENT, STATE, SYSTEM (write failed).
 *
 * The same is written to a file in the directory SOLCCL_DUMP_DIR when a
 * communicator fails, and for all communicators of a process when it gets the
 * signal that SOLCCL_DUMP_SIGNAL names: USR1, USR2 or QUIT.
 */
SOL_API sol_status_t sol_comm_dump(sol_comm_t comm, int fd);

/**
 * Write into `text` (at most `bytes`, always terminated) which protocol the
 * plan takes for this call on `comm`, with which resources, and why. `count` is
 * the count argument of the function. Local; moves nothing. Errors: ARGUMENT.
 */
SOL_API sol_status_t sol_explain(sol_comm_t comm, sol_func_t func, size_t count, sol_dtype_t dtype,
                                 sol_redop_t op, char *text, size_t bytes);

/**
 * Write into `text` what this machine offers: CPUs, instruction sets, shared
 * memory, GPUs, links, libraries found, and for each backend whether it can be
 * used and why not. One fact a line. Local; needs no communicator.
 */
SOL_API sol_status_t sol_machine_info(char *text, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif /* SOLCCL_SOLCCL_H */

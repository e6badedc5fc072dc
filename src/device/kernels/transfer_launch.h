/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer_launch.h: the host's door to the kernels of solccl/transfer.h. Unlike
 * those of launch.h they take no place in the sequence of collectives: any stream,
 * any order, any number at once. The kernels that write wait for nobody.
 *
 * What is to be written travels in the kernels' parameters, a batch at a time: no
 * memory is allocated, nothing has to stay valid, and a capture keeps its copy.
 */
#ifndef SOL_DEVICE_KERNELS_TRANSFER_LAUNCH_H
#define SOL_DEVICE_KERNELS_TRANSFER_LAUNCH_H

#include "device/kernels/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pages of one size to one peer; a single write is one page. Addresses as this GPU has them. */
struct sol_gpu_set {
    const char *from;
    char *to;
    uint64_t bytes; /* of a page */
    uint64_t npages, from_stride, to_stride;
    const uint32_t *from_pages, *to_pages; /* host memory; NULL: 0, 1, 2, ... */
    int peer;
};

/* How a launch is shaped. 0: chosen. */
struct sol_gpu_transfer_shape {
    int ctas;       /* most */
    int part_shift; /* pages of more than 2^part_shift bytes are shared by several CTAs */
};

/* Of 8 bytes: sets (4 each) and pairs of page numbers (1). Of the rest: transfer.cu. In the
 * emulator small writes reach every boundary. */
#ifdef SOL_EMU
#define SOL_GPU_TRANSFER_WORDS 21
#define SOL_TRANSFER_THREADS 32
#define SOL_TRANSFER_PART_SHIFT 8
#else
#define SOL_GPU_TRANSFER_WORDS 416
#define SOL_TRANSFER_THREADS 512
#define SOL_TRANSFER_PART_SHIFT 18
#endif

/* One call, being put together. To be treated as opaque. */
struct sol_gpu_transfer {
    const struct sol_gpu_comm *comm;
    struct sol_gpu_transfer_shape shape;
    unsigned flags;
    cudaStream_t stream;
    bool bytes_counted;                    /* or writes */
    uint64_t *counters[SOL_GPU_MAX_RANKS]; /* word that grows at each peer; all NULL: none */
    uint64_t owed[SOL_GPU_MAX_RANKS];      /* counted by a kernel of its own, at the end */
    cudaError_t error;                     /* the first one */
    uint64_t from_stride, to_stride;       /* of the batch's sets that need any */
    bool strided;                          /* some do */
    uint64_t most, total, units; /* bytes of the largest page and of all, pages; of the batch */
    unsigned nsets, npairs;
    uint64_t words[SOL_GPU_TRANSFER_WORDS]; /* sets from the front, pairs from the back */
};

/* `counters`: SOL_GPU_MAX_RANKS words in the peers' memory, or NULL. flags: SOL_GPU_PDL. */
void sol_gpu_transfer_begin(struct sol_gpu_transfer *call, const struct sol_gpu_comm *comm,
                            const struct sol_gpu_transfer_shape *shape, uint64_t *const *counters,
                            bool bytes_counted, unsigned flags, cudaStream_t stream);
/* Launches what is full. */
void sol_gpu_transfer_add(struct sol_gpu_transfer *call, const struct sol_gpu_set *set);
/* Of what somebody else writes on this stream before the end. */
void sol_gpu_transfer_owe(struct sol_gpu_transfer *call, int peer, uint64_t count);
/* Launches the rest: the first error of all, after which the counts are not told. */
cudaError_t sol_gpu_transfer_end(struct sol_gpu_transfer *call);

/* What is awaited: words[r] is what rank r has counted here. */
struct sol_gpu_await {
    const uint64_t *words;
    uint64_t value;
    int from;    /* -1: the sum of all */
    int counter; /* for the error record */
};
cudaError_t sol_gpu_transfer_await(const struct sol_gpu_comm *comm,
                                   const struct sol_gpu_await *await, unsigned flags,
                                   cudaStream_t stream);

/* The words as they are now, into `out`, device memory of the caller's. */
cudaError_t sol_gpu_transfer_look(const uint64_t *words, uint64_t *out, int nranks,
                                  cudaStream_t stream);

/* As sol_gpu_preload, of these kernels. */
cudaError_t sol_gpu_transfer_preload(void);

#ifdef __cplusplus
}
#endif
#endif

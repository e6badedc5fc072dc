/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.cuh: the instances of the kernels, found by what a call needs. Each
 * lookup is in the file of its algorithm; launch.cu asks.
 *
 * What is instantiated. The types and operations of models (bf16, fp16, fp32;
 * sum and average) with aligned buffers have kernels of their own ("hot"), in
 * several shapes, and so has much of what two ranks send that is small
 * (pair_ragged.h); everything else goes through one general kernel a type, whose
 * operation and alignment are found at run time. That keeps the library small:
 * the general kernels move data just as well, they only compute more slowly.
 */
#ifndef SOL_DEVICE_KERNELS_KERNELS_CUH
#define SOL_DEVICE_KERNELS_KERNELS_CUH

#include "device/kernels/launch.h"

/* A kernel of (struct sol_gpu_comm, its arguments), and how wide a CTA of it may be. */
struct sol_kernel {
    const void *function;
    int threads; /* most */
    int vectors; /* of a thread and turn */
};

/* What a lookup goes by. */
struct sol_kernel_key {
    sol_dtype_t dtype;
    sol_redop_t redop;
    int nranks;
    int vectors; /* wished */
    bool spread; /* receivers get different blocks */
    bool exact;  /* all addresses and sizes are multiples of 16 */
    bool rooted, premul;
    bool reduces; /* and does not only move */
    bool loop;    /* a thread takes more than one turn */
};

struct sol_kernel
sol_pair_for(const struct sol_kernel_key *key); /* where sol_kernel_pair says so */
struct sol_kernel sol_one_shot_for(const struct sol_kernel_key *key);
struct sol_kernel sol_two_shot_for(const struct sol_kernel_key *key);
struct sol_kernel sol_lane_reduce_for(const struct sol_kernel_key *key);
struct sol_kernel sol_push_for(const struct sol_kernel_key *key);
struct sol_kernel sol_exchange_for(const struct sol_kernel_key *key);
/* Only with a multicast address. */
struct sol_kernel sol_multicast_push_for(const struct sol_kernel_key *key);
struct sol_kernel sol_multicast_reduce_for(const struct sol_kernel_key *key);

/* Is there a kernel of its own for it? */
static inline bool sol_kernel_hot(const struct sol_kernel_key *key)
{
    bool type =
        key->dtype == SOL_BFLOAT16 || key->dtype == SOL_FLOAT16 || key->dtype == SOL_FLOAT32;
    return type && key->exact && !key->rooted && !key->premul &&
           (key->redop == SOL_SUM || key->redop == SOL_AVG);
}

/* Two ranks, and nothing that pair.cuh leaves out? */
static inline bool sol_kernel_pair(const struct sol_kernel_key *key)
{
    if (key->nranks != 2 || !key->exact)
        return false;
    return !key->reduces || (sol_kernel_hot(key) && key->redop == SOL_SUM);
}

/* Call X(dtype) for every type, as cases of a switch. */
#define SOL_FOR_EACH_DTYPE(X)                                                                      \
    X(SOL_INT8)                                                                                    \
    X(SOL_UINT8)                                                                                   \
    X(SOL_INT32)                                                                                   \
    X(SOL_UINT32)                                                                                  \
    X(SOL_INT64)                                                                                   \
    X(SOL_UINT64)                                                                                  \
    X(SOL_FLOAT16)                                                                                 \
    X(SOL_BFLOAT16)                                                                                \
    X(SOL_FLOAT32)                                                                                 \
    X(SOL_FLOAT64)                                                                                 \
    X(SOL_FLOAT8_E4M3)                                                                             \
    X(SOL_FLOAT8_E5M2)

#endif

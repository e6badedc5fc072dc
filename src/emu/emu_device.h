/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_device.h: what kernel code is compiled against: the functions behind the
 * stand-ins for CUDA's built-in variables, intrinsics and PTX. C and C++.
 */
#ifndef SOL_EMU_EMU_DEVICE_H
#define SOL_EMU_EMU_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct emu_dim {
    unsigned x, y, z;
};

/* Of the thread that runs. */
extern struct emu_dim threadIdx, blockIdx, blockDim, gridDim;

enum emu_scope { EMU_CTA, EMU_GPU, EMU_SYS };
enum emu_order { EMU_RELAXED, EMU_ACQUIRE, EMU_RELEASE, EMU_ACQ_REL };
enum emu_rmw_op { EMU_ADD, EMU_EXCHANGE, EMU_CAS, EMU_MIN, EMU_MAX, EMU_AND, EMU_OR, EMU_XOR };

/* Strong accesses of 1, 2, 4 or 8 bytes, naturally aligned. */
uint64_t emu_load(const volatile void *p, int bytes, enum emu_order order, enum emu_scope scope);
void emu_store(volatile void *p, uint64_t value, int bytes, enum emu_order order,
               enum emu_scope scope);
/* Returns the old value. */
uint64_t emu_rmw(volatile void *p, int bytes, enum emu_rmw_op op, uint64_t operand,
                 uint64_t expected, enum emu_order order, enum emu_scope scope);
void emu_fence(enum emu_scope scope);

/* Vectors: plain or strong; two words, each whole, in any order. `p` is aligned to 16. */
void emu_load_pair(const void *p, uint64_t pair[2]);
void emu_store_pair(void *p, uint64_t a, uint64_t b);
void emu_poll_pair(const void *p, uint64_t pair[2]);
void emu_push_pair(void *p, uint64_t a, uint64_t b);
/* A plain access that a wrapper hides from the compiler's hooks. */
uint64_t emu_load_plain(const void *p, int bytes);
void emu_store_plain(void *p, uint64_t value, int bytes);

/* Barrier of all threads of the CTA that have not exited. */
void emu_syncthreads(void);
/* The same, and the number of threads that bring true. */
unsigned emu_syncthreads_count(bool predicate);
/* All lanes of `mask` meet. `kind` names the instruction: all must bring the same. */
enum emu_warp_kind { EMU_SYNCWARP, EMU_BALLOT, EMU_SHUFFLE, EMU_MATCH };
void emu_syncwarp(uint32_t mask);
uint32_t emu_ballot(uint32_t mask, bool predicate);
uint64_t emu_shuffle(uint32_t mask, uint64_t value, int source_lane);

/* The memories that an address of multicast stands for (emu_multicast), and the place in each. */
int emu_multicast_count(const void *all);
void emu_multicast_close(void);
void *emu_multicast_place(const void *all, int i);

/* Programmatic dependent launch. */
void emu_await_predecessors(void);
void emu_admit_successor(void);

uint64_t emu_clock_ns(void);

/* This CTA's shared memory: the same address for the same `key` in all its threads. */
void *emu_shared(const void *key, size_t bytes);
void *emu_shared_dynamic(void);

/* Clusters. Every thread arrives and then waits, in turns; what was done before an arrival is known
 * after the wait. */
/* CTAs of this one's cluster. */
unsigned emu_cluster_ctas(void);
void emu_cluster_arrive(void);
void emu_cluster_wait(void);
/* Where the shared variable that is at `mine` here lies in CTA `cta` of the cluster. */
void *emu_cluster_map(void *mine, unsigned cta);
void emu_trap(const char *why);

/* Enqueue a kernel, in clusters of `cluster` CTAs side by side; `arguments` was allocated by the
 * caller and is freed by `release`. For cuda_runtime.h. Returns a cudaError_t. */
int emu_enqueue(const void *kernel, void (*invoke)(const void *), void *arguments,
                void (*release)(void *), struct emu_dim grid, struct emu_dim block,
                unsigned cluster, size_t shared_bytes, bool early, void *stream);

#ifdef __cplusplus
}
#endif
#endif

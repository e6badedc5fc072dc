/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cg_kernels.h: the local part of a conjugate gradient step on the 7-point Laplacian of a cube
 * with zero boundary, of which a rank has a slab of planes. A vector that the stencil reads has
 * one plane before and one behind the rank's own (the neighbours' planes, or zero at the ends).
 *
 * Sums are formed in one order, whatever the scheduling: by thread, by block, then over the blocks
 * by the block that ends last. So runs can be compared bit by bit.
 */
#ifndef SOL_APPS_CG_KERNELS_H
#define SOL_APPS_CG_KERNELS_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CG_BLOCKS = 1024 };

/** On the device. rr alternates: iteration i reads rr[i % 2] and writes rr[(i + 1) % 2]. */
typedef struct cg_scalars {
    double pq, rr[2];
    double partial[CG_BLOCKS];
    unsigned arrived;
} cg_scalars_t;

/** A rank's slab: planes of n * n points, the first being plane `first` of the cube. */
typedef struct cg_slab {
    int n, planes, first;
    double *x, *r, *q, *b; /**< planes * n * n each */
    double *p;             /**< (planes + 2) * n * n: with the neighbours' planes */
    cg_scalars_t *scalars;
} cg_slab_t;

/** p = a known solution, by the number of the point in the cube; with the neighbours' planes. */
cudaError_t cg_known(const cg_slab_t *slab, cudaStream_t stream);
/** b = A p. */
cudaError_t cg_right_side(const cg_slab_t *slab, cudaStream_t stream);
/** x = 0, r = p = b, rr[0] = this rank's part of r.r */
cudaError_t cg_start(const cg_slab_t *slab, cudaStream_t stream);
/** q = A p, pq = this rank's part of p.q */
cudaError_t cg_multiply(const cg_slab_t *slab, cudaStream_t stream);
/** x += a p, r -= a q with a = rr / pq; the new rr = this rank's part of r.r */
cudaError_t cg_update(const cg_slab_t *slab, int iteration, cudaStream_t stream);
/** p = r + b p with b = new rr / rr */
cudaError_t cg_direction(const cg_slab_t *slab, int iteration, cudaStream_t stream);
/** p = x and r = b - A x, once p's neighbours' planes are there: two calls around the exchange.
 * rr[0] = this rank's part of r.r */
cudaError_t cg_check_begin(const cg_slab_t *slab, cudaStream_t stream);
cudaError_t cg_check_end(const cg_slab_t *slab, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif

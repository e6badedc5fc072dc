/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantized.h: an all_reduce that sends fewer bytes than it has, at the price of
 * rounding errors that are bounded (docs/quantized.md). For messages where the
 * link is the limit. Never taken unless it is called by this name.
 *
 *     sol_all_reduce_quantized(x, x, n, SOL_BFLOAT16, SOL_INT8, 0, comm, stream);
 *
 * The rules of solccl.h hold here too.
 */
#ifndef SOLCCL_QUANTIZED_H
#define SOLCCL_QUANTIZED_H

#include "solccl/solccl.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Elements that share a scale on the wire: 0 ... 127 of the message, 128 ... 255, and so on. */
#define SOL_QUANTIZED_GROUP 128

/**
 * Every rank gets the sum of all contributions, each rounded to 8 bits on its way.
 * sendbuf, recvbuf: `count` elements of `dtype`, FLOAT32, FLOAT16 or BFLOAT16. In place: sendbuf ==
 * recvbuf. `wire`: SOL_FLOAT8_E4M3 or SOL_INT8. In IEEE fp32, each operation rounded to nearest
 * even, of a group x of 128 elements (the last may be shorter):
 *
 *   scale = max(largest |x_i|, 2^-100) / L                L is 448 (E4M3) or 127 (INT8)
 *   q_i = round_to_wire(x_i * (1 / scale)), ties to even; saturating
 *   [x]_i = q_i * scale                                   33/32 byte an element travel
 *
 *   steps 1:   result = round_to_dtype(([x^0] + [x^1]) + ...)    ranks in order, the own one too
 *   steps 2:   result = round_to_dtype([([x^0] + [x^1]) + ...])  each share is summed at one owner
 *
 * `steps` 0 takes 1 or 2, whichever sends for less time; a function of count and the number of
 * ranks alone. A NaN or an infinity in a group, or (2 steps) a sum that overflows, makes the
 * group's results NaN on all ranks. So the result has the same bits on every rank, in every run,
 * from CPU and from GPU ranks; it is within the bound of docs/quantized.md of the exact sum.
 *
 * Collective over `comm`: all ranks pass equal count, dtype, wire and steps. Stream-ordered and
 * legal in a capture on GPU ranks, blocking on CPU ranks; not legal inside a group. Errors: as the
 * collectives'; STATE (a group is open); UNSUPPORTED (GPU ranks without peer access).
 */
SOL_API sol_status_t sol_all_reduce_quantized(const void *sendbuf, void *recvbuf, size_t count,
                                              sol_dtype_t dtype, sol_dtype_t wire, int steps,
                                              sol_comm_t comm, void *stream);

#ifdef __cplusplus
}
#endif
#endif /* SOLCCL_QUANTIZED_H */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm.cuh: all_reduce, residual, norm and quantisation in one kernel, one hop:
 * one_shot.cuh with arithmetic between the arrival and the store. What is computed
 * is said in solccl/fused.h, and the order of its sums in coll/norm.h, whose bits
 * these are.
 *
 *     load input and epoch | push to every peer | leave ticket | load residual, weight |
 *     poll all peers, add up in rank order, add residual, round: h | store h, reset slots |
 *     sums of the row | scale | store
 *
 * A token's row is spread over a cluster of `spread` CTAs (1, 2, 4 or 8): few
 * tokens then use many SMs, since 16 KB in and five times 16 KB out of a single one
 * take longer than the hop. Its sums meet in shared memory: each warp's partial
 * sum goes to every CTA of the cluster, one barrier, and every warp adds them all
 * up for itself. All is kept in registers; rows that are too long for that go to
 * sol_norm_long_kernel, which keeps h in the slot that it came in.
 *
 * In a slot, rows begin at multiples of 16 bytes ("pitch"). Which CTA takes which
 * part may differ between ranks.
 *
 * Must never: let an order of additions depend on anything but hidden and dtype;
 * poll before its pushes of that row have been issued; let a thread leave before
 * its cluster is done: others wait for it in barriers.
 */
#ifndef SOL_DEVICE_KERNELS_NORM_CUH
#define SOL_DEVICE_KERNELS_NORM_CUH

#include "device/prim/slots.cuh"
#include "solccl/fused.h"

#define SOL_NORM_BLOCK 512    /* bytes of a row that a warp takes at a time */
#define SOL_NORM_BLOCKS 128   /* of a row, at most, in registers */
#ifndef SOL_NORM_LONG_THREADS /* (fewer in the emulator) */
#define SOL_NORM_LONG_THREADS 256
#endif

struct sol_norm_kernel_args {
    /* wanted at once */
    const char *input, *residual, *weight;
    char *residual_out, *output;
    uint32_t row, pitch; /* bytes of a row of dtype: in the caller's matrices, in a slot */
    uint32_t tokens;     /* of this launch */
    uint16_t spread;     /* CTAs of a cluster */
    uint16_t cta_blocks; /* blocks of a row that each of them takes */
    float inverse;       /* 1 / hidden */
    float epsilon, weight_bias;
    /* the general forms */
    uint32_t hidden;
    const char *bias, *static_scale;
    char *scales;
    uint32_t scales_row; /* floats of a token */
    uint8_t norm, quant, output_dtype;
};

/* The sums of a CTA: two sets in turn, so that one barrier a sum is enough. */
struct sol_norm_shared {
    float partial[2][SOL_NORM_BLOCKS];
};

/* A thread's vectors in a row: the v-th is at `at` + v * `step`, and there is none from `end` on.
 */
struct sol_norm_span {
    uint32_t at, step, end;
};

/* A thread's warp in its row: CTA `part` of the cluster; its v-th block is v * warps + warp. */
struct sol_norm_place {
    uint32_t part, warp, warps, lane;
};

/* --- rows --------------------------------------------------------------------------------------
 */

template <int V, bool WHOLE>
SOL_GPU_FN void sol_norm_load(const char *matrix, uint32_t row, uint32_t token,
                              const struct sol_norm_span &span, struct sol_vector (&x)[V])
{
    const char *from = matrix + (uint64_t)token * row;
#pragma unroll
    for (int v = 0; v < V; v++) {
        uint32_t at = span.at + v * span.step;
        if (WHOLE) {
            x[v] = sol_load_16(from + at);
        } else {
            x[v].a = x[v].b = 0;
            if (at < span.end)
                x[v] = sol_load_vector<false>(from + at, span.end - at);
        }
    }
}

template <int V, bool WHOLE>
SOL_GPU_FN void sol_norm_store(char *matrix, uint32_t row, uint32_t token,
                               const struct sol_norm_span &span, const struct sol_vector (&x)[V])
{
    char *to = matrix + (uint64_t)token * row;
#pragma unroll
    for (int v = 0; v < V; v++) {
        uint32_t at = span.at + v * span.step;
        if (WHOLE)
            sol_store_16(to + at, x[v]);
        else if (at < span.end)
            sol_store_vector<false>(to + at, span.end - at, x[v]);
    }
}

/* The same vectors in a slot. */
SOL_GPU_FN struct sol_place sol_norm_slot(const struct sol_norm_kernel_args &args, uint32_t token,
                                          const struct sol_norm_span &span)
{
    struct sol_place place = {token * args.pitch + span.at, span.step, 0};
    return place;
}

/* Where a slot's bytes that matter to a thread end. */
template <bool WHOLE>
SOL_GPU_FN uint32_t sol_norm_slot_end(const struct sol_norm_kernel_args &args, uint32_t token,
                                      const struct sol_norm_span &span)
{
    return WHOLE ? UINT32_MAX : token * args.pitch + span.end;
}

template <int N, int V, bool WHOLE>
SOL_GPU_FN void sol_norm_push(const struct sol_norm_kernel_args &args, const struct sol_link &comm,
                              const struct sol_ticket &ticket, int n, uint32_t token,
                              const struct sol_norm_span &span, const struct sol_vector (&x)[V])
{
    if (!ticket.dead)
        sol_send_to_all<N, V, true>(comm, ticket, n, 0, sol_norm_slot_end<WHOLE>(args, token, span),
                                    sol_norm_slot(args, token, span), x);
}

template <int N, int V, bool WHOLE>
SOL_GPU_FN bool sol_norm_receive(const struct sol_norm_kernel_args &args,
                                 const struct sol_link &comm, const struct sol_ticket &ticket,
                                 int rank, int n, uint32_t token, const struct sol_norm_span &span,
                                 const struct sol_story &story, struct sol_vector (&in)[N - 1][V])
{
    return sol_receive<N, V, true>(comm, ticket, rank, n, 0,
                                   sol_norm_slot_end<WHOLE>(args, token, span),
                                   sol_norm_slot(args, token, span), story, in);
}

/* --- sums of a row -----------------------------------------------------------------------------
 */

template <bool MAX> SOL_GPU_FN float sol_norm_join(float a, float b)
{
    return MAX ? sol_max_f32(a, b) : sol_add_f32(a, b);
}

/* Over `lanes` neighbouring lanes of the warp, a power of two; all get the result. */
template <bool MAX, int LANES> SOL_GPU_FN float sol_norm_fold(float x)
{
#pragma unroll
    for (int half = LANES / 2; half > 0; half /= 2)
        x = sol_norm_join<MAX>(x, __shfl_xor_sync(0xffffffffu, x, half));
    return x;
}

template <int E> SOL_GPU_FN float sol_norm_tree(const float *x)
{
    float low = sol_add_f32(sol_add_f32(x[0], x[1]), sol_add_f32(x[2], x[3]));
    if constexpr (E == 8) {
        float high = sol_add_f32(sol_add_f32(x[4], x[5]), sol_add_f32(x[6], x[7]));
        return sol_add_f32(low, high);
    }
    return low;
}

/* x - mean of the elements within the row (`centred`), or x; or their squares; over a block. */
template <int D>
SOL_GPU_FN float sol_norm_block(struct sol_vector h, bool centred, float mean, bool squares,
                                uint32_t column, uint32_t hidden)
{
    enum { E = sol_element<D>::count };
    struct sol_lanes<D> x = sol_unpack<D>(h);
#pragma unroll
    for (int i = 0; i < E; i++) {
        if (centred)
            x.x[i] = column + i < hidden ? sol_add_f32(x.x[i], -mean) : 0.0f;
        if (squares)
            x.x[i] = sol_mul_f32(x.x[i], x.x[i]);
    }
    return sol_norm_fold<false, 32>(sol_norm_tree<E>(x.x));
}

/* Tell the cluster the values of this warp's blocks, and arrive; `set` tells one sum from the next.
 * What is done before sol_norm_collect delays nobody. */
template <int V>
SOL_GPU_FN void sol_norm_tell(struct sol_norm_shared &shared, unsigned set,
                              const struct sol_norm_kernel_args &args,
                              const struct sol_norm_place &place, const float (&block)[V])
{
    float *partial = &shared.partial[set & 1][place.part * args.cta_blocks];
#pragma unroll
    for (int v = 0; v < V; v++) {
        uint32_t b = v * place.warps + place.warp;
        if (b >= args.cta_blocks || place.lane >= args.spread)
            continue;
        if (args.spread == 1)
            partial[b] = block[v];
        else
            sol_cluster_store(&partial[b], place.lane, block[v]);
    }
    if (args.spread > 1) {
        __syncwarp();
        sol_cluster_arrive();
    }
}

/* Every warp adds up (or finds the largest of) all blocks of the row, in the one order. */
template <bool MAX>
SOL_GPU_FN float sol_norm_collect(const struct sol_norm_shared &shared, unsigned set,
                                  const struct sol_norm_kernel_args &args,
                                  const struct sol_norm_place &place)
{
    if (args.spread > 1)
        sol_cluster_wait();
    else
        __syncthreads();
    const float *partial = shared.partial[set & 1];
    float x = 0;
    for (uint32_t b = place.lane; b < (uint32_t)args.spread * args.cta_blocks; b += 32)
        x = sol_norm_join<MAX>(x, partial[b]);
    return sol_norm_fold<MAX, 32>(x);
}

SOL_GPU_FN float sol_norm_root(const struct sol_norm_kernel_args &args, float sum)
{
    float square = sol_add_f32(sol_mul_f32(sum, args.inverse), args.epsilon);
    return sol_div_f32(1.0f, sol_sqrt_f32(square));
}

/* --- h and y -----------------------------------------------------------------------------------
 */

/* Contributions in rank order, then the residual, rounded once: h. */
template <int D, int N, int V>
SOL_GPU_FN struct sol_vector sol_norm_h(int rank, int n, struct sol_vector own,
                                        const struct sol_vector (&in)[N - 1][V], int v,
                                        bool with_residual, struct sol_vector residual)
{
    struct sol_lanes<D> acc;
    if constexpr (N == 2) { /* the sum of two commutes, bit for bit */
        acc = sol_unpack<D>(own);
        sol_combine<D>(SOL_SUM, acc, sol_unpack<D>(in[0][v]));
    } else {
        acc = sol_unpack<D>(rank == 0 ? own : in[0][v]);
#pragma unroll
        for (int r = 1; r < N; r++) {
            if (r >= n)
                break;
            struct sol_vector x = r < rank && r < N - 1 ? in[r < N - 1 ? r : 0][v] : in[r - 1][v];
            sol_combine<D>(SOL_SUM, acc, sol_unpack<D>(r == rank ? own : x));
        }
    }
    if (with_residual)
        sol_combine<D>(SOL_SUM, acc, sol_unpack<D>(residual));
    return sol_pack<D>(acc);
}

/* The weights of the vector at `at`, with what is added to them. */
template <int D, bool WHOLE>
SOL_GPU_FN struct sol_lanes<D> sol_norm_weights(const struct sol_norm_kernel_args &args,
                                                uint32_t at, uint32_t end) {
    struct sol_vector v = {0, 0};
    if (WHOLE)
        v = sol_load_16(args.weight + at);
    else if (args.weight && at < end)
        v = sol_load_vector<false>(args.weight + at, end - at);
    struct sol_lanes<D> w = sol_unpack<D>(v);
#pragma unroll
    for (int i = 0; i < sol_element<D>::count; i++)
        w.x[i] = sol_add_f32(w.x[i], args.weight_bias);
    return w;
}

/* Of any form: h to y, where `at` is the vector's place in the row. */
template <int D>
SOL_GPU_FN void sol_norm_apply(const struct sol_norm_kernel_args &args, uint32_t at, uint32_t end,
                               struct sol_vector h, float mean, float r,
                               const struct sol_lanes<D> &weight, float *y)
{
    enum { E = sol_element<D>::count };
    struct sol_lanes<D> x = sol_unpack<D>(h);
#pragma unroll
    for (int i = 0; i < E; i++) {
        y[i] = args.norm == SOL_NORM_LAYER ? sol_add_f32(x.x[i], -mean) : x.x[i];
        y[i] = sol_mul_f32(y[i], r);
        if (args.weight)
            y[i] = sol_mul_f32(y[i], weight.x[i]);
    }
    if (args.bias && at < end) {
        struct sol_lanes<D> bias = sol_unpack<D>(sol_load_vector<false>(args.bias + at, end - at));
#pragma unroll
        for (int i = 0; i < E; i++)
            y[i] = sol_add_f32(y[i], bias.x[i]);
    }
}

/* --- quantisation: as in coll/norm.c ------------------------------------------------------------
 */

SOL_GPU_FN float sol_norm_scale(float amax, int dtype, bool power)
{
    float largest = dtype == SOL_INT8 ? 127.0f : dtype == SOL_FLOAT8_E4M3 ? 448.0f : 57344.0f;
    float scale = sol_div_f32(amax < 0x1p-100f ? 0x1p-100f : amax, largest);
    uint32_t bits = sol_bits_f32(scale);
    if (scale != scale)
        bits = 0x7fc00000u;
    else if (power && (bits & 0x7fffffu) != 0 && bits < 0x7f800000u)
        bits = (bits & 0x7f800000u) + 0x800000u;
    return sol_f32_bits(bits);
}

/* The largest |y| of a vector. */
template <int E> SOL_GPU_FN float sol_norm_amax(const float *y, uint32_t column, uint32_t hidden)
{
    float amax = 0;
#pragma unroll
    for (int i = 0; i < E; i++)
        if (column + i < hidden)
            amax = sol_max_f32(amax, sol_f32_bits(sol_bits_f32(y[i]) & 0x7fffffffu));
    return amax;
}

SOL_GPU_FN void sol_norm_put_scale(const struct sol_norm_kernel_args &args, uint64_t index,
                                   float scale)
{
    struct sol_vector v = {sol_bits_f32(scale), 0};
    sol_store_vector<false>(args.scales + index * 4, 4, v);
}

/* Scale of a vector's group, which is 16 or 32 neighbouring lanes. The first of them writes it. */
template <int E>
SOL_GPU_FN float sol_norm_group(const struct sol_norm_kernel_args &args, uint32_t token,
                                uint32_t column, const float *y)
{
    float amax =
        sol_norm_fold<true, SOL_QUANT_GROUP_COLUMNS / E>(sol_norm_amax<E>(y, column, args.hidden));
    float scale = sol_norm_scale(amax, args.output_dtype, args.quant == SOL_QUANT_GROUP_POW2);
    if (column < args.hidden && column % SOL_QUANT_GROUP_COLUMNS == 0)
        sol_norm_put_scale(
            args, (uint64_t)token * args.scales_row + column / SOL_QUANT_GROUP_COLUMNS, scale);
    return scale;
}

SOL_GPU_FN uint32_t sol_norm_pack_int8(const float *y)
{
    uint32_t w = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float x = y[i] != y[i] ? 0.0f : y[i] > 127.0f ? 127.0f : y[i] < -127.0f ? -127.0f : y[i];
        w |= ((uint32_t)(int32_t)sol_rint_f32(x) & 0xff) << 8 * i;
    }
    return w;
}

/* Four elements of a type that is known only now; they fill 4, 8 or 16 bytes. */
SOL_GPU_FN struct sol_vector sol_norm_pack_four(const float *y, int dtype)
{
    struct sol_vector v = {0, 0};
    switch (dtype) {
    case SOL_BFLOAT16:
        v.a = sol_pack_u32<SOL_BFLOAT16>(y) | (uint64_t)sol_pack_u32<SOL_BFLOAT16>(y + 2) << 32;
        break;
    case SOL_FLOAT16:
        v.a = sol_pack_u32<SOL_FLOAT16>(y) | (uint64_t)sol_pack_u32<SOL_FLOAT16>(y + 2) << 32;
        break;
    case SOL_FLOAT8_E4M3:
        v.a = sol_pack_u32<SOL_FLOAT8_E4M3>(y);
        break;
    case SOL_FLOAT8_E5M2:
        v.a = sol_pack_u32<SOL_FLOAT8_E5M2>(y);
        break;
    case SOL_INT8:
        v.a = sol_norm_pack_int8(y);
        break;
    default:
        v.a = sol_pack_u32<SOL_FLOAT32>(y) | (uint64_t)sol_pack_u32<SOL_FLOAT32>(y + 1) << 32;
        v.b = sol_pack_u32<SOL_FLOAT32>(y + 2) | (uint64_t)sol_pack_u32<SOL_FLOAT32>(y + 3) << 32;
    }
    return v;
}

/* E elements from `column` on, as far as the row goes. */
template <int E>
SOL_GPU_FN void sol_norm_put(const struct sol_norm_kernel_args &args, uint32_t token,
                             uint32_t column, const float *y)
{
    const int dtype = args.output_dtype;
    const uint32_t size = dtype == SOL_FLOAT32                            ? 4
                          : dtype == SOL_FLOAT16 || dtype == SOL_BFLOAT16 ? 2
                                                                          : 1;
    char *to = args.output + ((uint64_t)token * args.hidden + column) * size;
#pragma unroll
    for (int e = 0; e < E; e += 4) {
        if (column + e >= args.hidden)
            break;
        uint32_t left = args.hidden - column - e;
        sol_store_vector<false>(to + e * size, (left < 4 ? left : 4) * size,
                                sol_norm_pack_four(y + e, dtype));
    }
}

template <int E>
SOL_GPU_FN void sol_norm_put_scaled(const struct sol_norm_kernel_args &args, uint32_t token,
                                    uint32_t column, float *y, float inverse)
{
#pragma unroll
    for (int i = 0; i < E; i++)
        y[i] = sol_mul_f32(y[i], inverse);
    sol_norm_put<E>(args, token, column, y);
}

SOL_GPU_FN float sol_norm_static_scale(const struct sol_norm_kernel_args &args)
{
    return sol_f32_bits((uint32_t)sol_load_vector<false>(args.static_scale, 4).a);
}

/* Outputs of a vector for which only its group need be known; not SOL_QUANT_TOKEN. */
template <int E>
SOL_GPU_FN void sol_norm_put_vector(const struct sol_norm_kernel_args &args, uint32_t token,
                                    uint32_t column, float *y)
{
    if (args.quant == SOL_QUANT_NONE) {
        sol_norm_put<E>(args, token, column, y);
        return;
    }
    float scale = args.quant == SOL_QUANT_STATIC ? sol_norm_static_scale(args)
                                                 : sol_norm_group<E>(args, token, column, y);
    sol_norm_put_scaled<E>(args, token, column, y, sol_div_f32(1.0f, scale));
}

/* --- rows in registers -------------------------------------------------------------------------
 */

/* Column of a thread's v-th vector; where it has none, beyond the row. */
template <int E>
SOL_GPU_FN uint32_t sol_norm_column(const struct sol_norm_kernel_args &args,
                                    const struct sol_norm_span &span, int v)
{
    const uint32_t at = span.at + v * span.step;
    return at < span.end ? at * E / 16 : args.hidden;
}

/* Outputs of any form. `set` may go on by one. */
template <int D, int V>
SOL_GPU_FN void sol_norm_outputs(struct sol_norm_shared &shared, unsigned &set,
                                 const struct sol_norm_kernel_args &args,
                                 const struct sol_norm_place &place, uint32_t token,
                                 const struct sol_norm_span &span, const struct sol_vector (&h)[V],
                                 float mean, float r, const struct sol_lanes<D> (&weight)[V])
{
    enum { E = sol_element<D>::count };
    float y[V][E], block[V];
#pragma unroll
    for (int v = 0; v < V; v++)
        sol_norm_apply<D>(args, span.at + v * span.step, span.end, h[v], mean, r, weight[v], y[v]);
    if (args.quant != SOL_QUANT_TOKEN) {
#pragma unroll
        for (int v = 0; v < V; v++)
            sol_norm_put_vector<E>(args, token, sol_norm_column<E>(args, span, v), y[v]);
        return;
    }
#pragma unroll
    for (int v = 0; v < V; v++)
        block[v] = sol_norm_fold<true, 32>(
            sol_norm_amax<E>(y[v], sol_norm_column<E>(args, span, v), args.hidden));
    sol_norm_tell<V>(shared, set, args, place, block);
    float amax = sol_norm_collect<true>(shared, set++, args, place);
    float scale = sol_norm_scale(amax, args.output_dtype, false);
    if (place.part == 0 && threadIdx.x == 0)
        sol_norm_put_scale(args, token, scale);
#pragma unroll
    for (int v = 0; v < V; v++)
        sol_norm_put_scaled<E>(args, token, sol_norm_column<E>(args, span, v), y[v],
                               sol_div_f32(1.0f, scale));
}

/* The same for a plain form, in its own words. */
template <int D, int V>
SOL_GPU_FN void sol_norm_plain_outputs(const struct sol_norm_kernel_args &args, uint32_t token,
                                       const struct sol_norm_span &span, struct sol_vector (&h)[V],
                                       float r, const struct sol_lanes<D> (&weight)[V])
{
#pragma unroll
    for (int v = 0; v < V; v++) {
        struct sol_lanes<D> y = sol_unpack<D>(h[v]);
#pragma unroll
        for (int i = 0; i < sol_element<D>::count; i++)
            y.x[i] = sol_mul_f32(sol_mul_f32(y.x[i], r), weight[v].x[i]);
        h[v] = sol_pack<D>(y);
    }
    sol_norm_store<V, true>(args.output, args.row, token, span, h);
}

SOL_GPU_FN struct sol_norm_span sol_norm_span_of(const struct sol_norm_kernel_args &args,
                                                 const struct sol_norm_place &place)
{
    const uint32_t first = place.part * args.cta_blocks * SOL_NORM_BLOCK;
    uint32_t end = first + args.cta_blocks * SOL_NORM_BLOCK;
    struct sol_norm_span span = {first + threadIdx.x * 16, blockDim.x * 16,
                                 end < args.row ? end : args.row};
    return span;
}

/*
 * PLAIN: an RMS norm with weights, output of the input's type, every vector whole, aligned and
 * within the row. V: vectors of a thread.
 */
template <int D, int N, int V, bool PLAIN>
__global__ void __launch_bounds__(V == 1 && PLAIN ? 1024 : 512, 1)
    sol_norm_kernel(const __grid_constant__ struct sol_norm_kernel_args args,
                    const __grid_constant__ struct sol_link comm,
                    const __grid_constant__ struct sol_tail tail)
{
    enum { E = sol_element<D>::count };
    SOL_SHARED(struct sol_norm_shared, shared);
    const int n = N == 2 ? 2 : comm.nranks, rank = comm.rank;
    const bool layer = !PLAIN && args.norm == SOL_NORM_LAYER;
    const struct sol_norm_place place = {blockIdx.x % args.spread, threadIdx.x / 32,
                                         blockDim.x / 32, threadIdx.x % 32};
    const struct sol_norm_span span = sol_norm_span_of(args, place);
    uint32_t token = blockIdx.x / args.spread;
    unsigned set = 0;
    if (args.spread > 1)
        sol_cluster_arrive(); /* nobody stores to a CTA that has not started: waited for below */
    sol_await_predecessors();
    sol_admit_successor();

    struct sol_vector own[V], out[V], residual[V], in[N - 1][V], h[V];
    struct sol_lanes<D> weight[V];
    sol_norm_load<V, PLAIN>(args.input, args.row, token, span, out);
    const struct sol_ticket ticket = sol_take_ticket(comm);
    bool good = !ticket.dead; /* who has given up goes on to all barriers, but writes nothing */
    sol_norm_push<N, V, PLAIN>(args, comm, ticket, n, token, span, out);
    for (bool once = true;; once = false) {
        const uint32_t next = token + gridDim.x / args.spread;
        const bool more = next < args.tokens;
#pragma unroll
        for (int v = 0; v < V; v++)
            own[v] = out[v];
        if (args.residual)
            sol_norm_load<V, PLAIN>(args.residual, args.row, token, span, residual);
        if (once) {
#pragma unroll
            for (int v = 0; v < V; v++)
                weight[v] = sol_norm_weights<D, PLAIN>(args, span.at + v * span.step, span.end);
            sol_leave_ticket(comm, ticket);
        }
        if (more)
            sol_norm_load<V, PLAIN>(args.input, args.row, next, span, out);
        good = good && sol_norm_receive<N, V, PLAIN>(args, comm, ticket, rank, n, token, span,
                                                     tail.story, in);
        if (more) /* travels while this row is normalised */
            sol_norm_push<N, V, PLAIN>(args, comm, ticket, n, next, span, out);
        float block[V], mean = 0;
#pragma unroll
        for (int v = 0; v < V; v++)
            h[v] = sol_norm_h<D, N, V>(rank, n, own[v], in, v, args.residual, residual[v]);
        if (once && args.spread > 1)
            sol_cluster_wait();
        if (layer) {
#pragma unroll
            for (int v = 0; v < V; v++)
                block[v] = sol_norm_block<D>(h[v], false, 0, false, 0, 0);
            sol_norm_tell<V>(shared, set, args, place, block);
            mean = sol_mul_f32(sol_norm_collect<false>(shared, set++, args, place), args.inverse);
        }
#pragma unroll
        for (int v = 0; v < V; v++)
            block[v] = sol_norm_block<D>(h[v], layer, mean, true, sol_norm_column<E>(args, span, v),
                                         args.hidden);
        sol_norm_tell<V>(shared, set, args, place, block);
        if (args.residual_out && good)
            sol_norm_store<V, PLAIN>(args.residual_out, args.row, token, span, h);
        sol_reset<N, V, true>(comm, ticket, rank, n, 0, sol_norm_slot_end<PLAIN>(args, token, span),
                              sol_norm_slot(args, token, span));
        const float sum = sol_norm_collect<false>(shared, set++, args, place);
        if constexpr (PLAIN) {
            if (good)
                sol_norm_plain_outputs<D, V>(args, token, span, h, sol_norm_root(args, sum),
                                             weight);
        } else {
            sol_norm_outputs<D, V>(shared, set, args, place, token, span, h, mean,
                                   sol_norm_root(args, sum), weight);
        }
        if (!more)
            break;
        token = next;
    }
}

/* --- rows of any length: a CTA a token, piece by piece -------------------------------------------
 */

/* Where a piece's h is kept: the slot of the first source, which is this rank's until the end. */
SOL_GPU_FN char *sol_norm_kept(const struct sol_link &comm, const struct sol_ticket &ticket)
{
    return (comm.nranks > 1 ? comm.in : comm.in - comm.slot_bytes) + ticket.shift;
}

/* One more block of the row for this warp, which takes every eighth: for its sum `mine[b % 32]`. */
template <bool MAX>
SOL_GPU_FN void sol_norm_add_block(float *mine, uint32_t b, uint32_t lane, float value)
{
    if (lane == 0)
        mine[b % 32] = sol_norm_join<MAX>(mine[b % 32], value);
}

SOL_GPU_FN void sol_norm_clear(float *mine, uint32_t warp, uint32_t warps, uint32_t lane)
{
    for (uint32_t b = warp; b < 32 && lane == 0; b += warps)
        mine[b] = 0;
}

template <bool MAX> SOL_GPU_FN float sol_norm_long_collect(const float *partial, uint32_t lane)
{
    __syncthreads();
    return sol_norm_fold<MAX, 32>(partial[lane]);
}

/* All forms, all alignments. The row of `token` has been pushed; false: gave up. */
template <int D>
SOL_GPU_FN bool sol_norm_long_arrive(const struct sol_norm_kernel_args &args,
                                     const struct sol_link &comm, const struct sol_ticket &ticket,
                                     const struct sol_story &story, uint32_t token, float *sums)
{
    const bool squares = args.norm == SOL_NORM_RMS;
    const uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32, lane = threadIdx.x % 32;
    const uint32_t slot = token * args.pitch, end = slot + args.row;
    bool good = true;
    for (uint32_t base = 0, b = warp; base < args.row; base += blockDim.x * 16, b += warps) {
        struct sol_norm_span span = {base + threadIdx.x * 16, 0, args.row};
        struct sol_place place = {slot + span.at, 0, 0};
        struct sol_vector own[1], residual[1], in[SOL_GPU_MAX_RANKS - 1][1], h[1];
        sol_norm_load<1, false>(args.input, args.row, token, span, own);
        if (args.residual)
            sol_norm_load<1, false>(args.residual, args.row, token, span, residual);
        good = good && sol_receive<SOL_GPU_MAX_RANKS, 1, true>(comm, ticket, comm.rank, comm.nranks,
                                                               0, end, place, story, in);
        sol_reset<SOL_GPU_MAX_RANKS, 1, true>(comm, ticket, comm.rank, comm.nranks, 0, end, place);
        h[0] = sol_norm_h<D, SOL_GPU_MAX_RANKS, 1>(comm.rank, comm.nranks, own[0], in, 0,
                                                   args.residual, residual[0]);
        if (args.residual_out && good)
            sol_norm_store<1, false>(args.residual_out, args.row, token, span, h);
        if (span.at < args.row)
            sol_push_vector(sol_norm_kept(comm, ticket) + place.at, h[0]);
        sol_norm_add_block<false>(sums, b, lane, sol_norm_block<D>(h[0], false, 0, squares, 0, 0));
    }
    return good;
}

template <int D>
SOL_GPU_FN void sol_norm_long_push(const struct sol_norm_kernel_args &args,
                                   const struct sol_link &comm, const struct sol_ticket &ticket,
                                   uint32_t token)
{
    for (uint32_t base = 0; base < args.row; base += blockDim.x * 16) {
        struct sol_norm_span span = {base + threadIdx.x * 16, 0, args.row};
        struct sol_vector own[1];
        sol_norm_load<1, false>(args.input, args.row, token, span, own);
        sol_norm_push<SOL_GPU_MAX_RANKS, 1, false>(args, comm, ticket, comm.nranks, token, span,
                                                   own);
    }
}

enum sol_norm_pass { SOL_NORM_SQUARES, SOL_NORM_AMAX, SOL_NORM_OUTPUT };

/* Once more over the row that is kept: squares of h - mean, or amax, for `sums`; or the output. */
template <int D>
SOL_GPU_FN void sol_norm_long_pass(const struct sol_norm_kernel_args &args,
                                   const struct sol_link &comm, const struct sol_ticket &ticket,
                                   uint32_t token, int pass, float mean, float r, float inverse,
                                   float *sums)
{
    enum { E = sol_element<D>::count };
    const uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32, lane = threadIdx.x % 32;
    for (uint32_t base = 0, b = warp; base < args.row; base += blockDim.x * 16, b += warps) {
        const uint32_t at = base + threadIdx.x * 16, column = at * E / 16;
        char *kept = sol_norm_kept(comm, ticket) + token * args.pitch + at;
        struct sol_vector h = {0, 0};
        float y[E];
        if (at < args.row)
            h = sol_poll_vector(kept);
        if (pass == SOL_NORM_SQUARES) {
            sol_norm_add_block<false>(sums, b, lane,
                                      sol_norm_block<D>(h, true, mean, true, column, args.hidden));
            continue;
        }
        sol_norm_apply<D>(args, at, args.row, h, mean, r,
                          sol_norm_weights<D, false>(args, at, args.row), y);
        if (pass == SOL_NORM_AMAX) {
            sol_norm_add_block<true>(
                sums, b, lane, sol_norm_fold<true, 32>(sol_norm_amax<E>(y, column, args.hidden)));
            continue;
        }
        if (args.quant == SOL_QUANT_TOKEN)
            sol_norm_put_scaled<E>(args, token, column, y, inverse);
        else
            sol_norm_put_vector<E>(args, token, column, y);
        if (at < args.row)
            sol_reset_vector(kept);
    }
}

template <int D>
__global__ void __launch_bounds__(SOL_NORM_LONG_THREADS, 1)
    sol_norm_long_kernel(const __grid_constant__ struct sol_norm_kernel_args args,
                         const __grid_constant__ struct sol_link comm,
                         const __grid_constant__ struct sol_tail tail)
{
    SOL_SHARED(struct sol_norm_shared, shared);
    const uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32, lane = threadIdx.x % 32;
    unsigned set = 0;
    sol_await_predecessors();
    sol_admit_successor();
    const struct sol_ticket ticket = sol_take_ticket(comm);
    bool good = !ticket.dead;
    for (uint32_t token = blockIdx.x; token < args.tokens; token += gridDim.x) {
        float mean = 0, inverse = 1, *sums = shared.partial[set++ & 1];
        sol_norm_long_push<D>(args, comm, ticket, token);
        if (token == blockIdx.x)
            sol_leave_ticket(comm, ticket);
        sol_norm_clear(sums, warp, warps, lane);
        good = sol_norm_long_arrive<D>(args, comm, ticket, tail.story, token, sums) && good;
        float sum = sol_norm_long_collect<false>(sums, lane);
        if (args.norm == SOL_NORM_LAYER) {
            mean = sol_mul_f32(sum, args.inverse);
            sums = shared.partial[set++ & 1];
            sol_norm_clear(sums, warp, warps, lane);
            sol_norm_long_pass<D>(args, comm, ticket, token, SOL_NORM_SQUARES, mean, 0, 0, sums);
            sum = sol_norm_long_collect<false>(sums, lane);
        }
        const float r = sol_norm_root(args, sum);
        if (args.quant == SOL_QUANT_TOKEN) {
            sums = shared.partial[set++ & 1];
            sol_norm_clear(sums, warp, warps, lane);
            sol_norm_long_pass<D>(args, comm, ticket, token, SOL_NORM_AMAX, mean, r, 0, sums);
            float amax = sol_norm_long_collect<true>(sums, lane);
            float scale = sol_norm_scale(amax, args.output_dtype, false);
            if (threadIdx.x == 0)
                sol_norm_put_scale(args, token, scale);
            inverse = sol_div_f32(1.0f, scale);
        }
        sol_norm_long_pass<D>(args, comm, ticket, token, SOL_NORM_OUTPUT, mean, r, inverse, sums);
    }
}

#endif

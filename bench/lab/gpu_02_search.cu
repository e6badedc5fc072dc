/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_02_search.cu: one-shot all_reduce and push all_gather with 2 ranks, over
 * grids, for every size; results checked.
 * Idea: the kernels are the library's; what is open is their shape. "bytes" is
 * what a rank sends (all_gather: its block).
 */
#include "device/kernels/init.cuh"
#include "device/kernels/pair.cuh"
#include "gpu_rig.cuh"

static __global__ void reference_kernel(const uint16_t *a, const uint16_t *b, uint16_t *out,
                                        size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        float s = __uint_as_float((uint32_t)a[i] << 16) + __uint_as_float((uint32_t)b[i] << 16);
        uint32_t bits = __float_as_uint(s);
        out[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}
static __global__ void differ_kernel(const uint64_t *a, const uint64_t *b, size_t n,
                                     unsigned long long *count)
{
    unsigned long long d = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        d += a[i] != b[i];
    if (d)
        atomicAdd(count, d);
}

typedef void (*reduce_kernel)(struct sol_one_shot_args, struct sol_link, struct sol_tail);
typedef void (*move_kernel)(struct sol_push_args, struct sol_link, struct sol_tail);

int main(int argc, char **argv)
{
    size_t least = argc > 1 ? strtoul(argv[1], 0, 0) : 256;
    size_t most = argc > 2 ? strtoul(argv[2], 0, 0) : 16u << 20;
    rig r;
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    devices = std::min(devices, 2);
    printf("%d devices\n", devices);
    rig_open(r, 2, devices, 160u << 20, 1000000000ull);
    size_t slot = r.ranks[0].comm.layout.slot_bytes;
    printf("slot %zu bytes, staging %llu\n", slot,
           (unsigned long long)r.ranks[0].comm.layout.total);
    char *in[2], *out[2], *want[2];
    unsigned long long *count;
    for (int i = 0; i < 2; i++) {
        CHECK(cudaSetDevice(r.ranks[i].device));
        CHECK(cudaMalloc((void **)&in[i], most));
        CHECK(cudaMalloc((void **)&out[i], 2 * most));
        CHECK(cudaMalloc((void **)&want[i], 2 * most));
        rig_fill<<<64, 256>>>((uint64_t *)in[i], most / 8, 17 + i, 1);
        sol_init_kernel<<<128, 512>>>(r.ranks[i].comm);
        sol_init_counters_kernel<<<1, 1>>>(r.ranks[i].comm, 1);
        CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaHostAlloc((void **)&count, 64, cudaHostAllocPortable));
    struct form {
        int vectors;
        bool loop;
        reduce_kernel reduce;
        move_kernel move;
    };
    const struct form forms[] = {{1, false, sol_pair_reduce_kernel<SOL_BFLOAT16, 1, false, false>,
                                  sol_pair_push_kernel<1, false, false>},
                                 {1, true, sol_pair_reduce_kernel<SOL_BFLOAT16, 1, false, true>,
                                  sol_pair_push_kernel<1, false, true>}};
    for (int op = 0; op < 2; op++)
        for (size_t bytes = least; bytes <= most && bytes <= slot; bytes *= 4) {
            for (int i = 0; i < 2; i++) {
                CHECK(cudaSetDevice(r.ranks[i].device));
                if (op == 0) {
                    reference_kernel<<<64, 256>>>((uint16_t *)in[0], (uint16_t *)in[1],
                                                  (uint16_t *)want[i], bytes / 2);
                } else {
                    CHECK(cudaMemcpy(want[i], in[0], bytes, cudaMemcpyDefault));
                    CHECK(cudaMemcpy(want[i] + bytes, in[1], bytes, cudaMemcpyDefault));
                }
                CHECK(cudaDeviceSynchronize());
            }
            double best[2] = {1e9, 1e9};
            char shape[2][64] = {"", ""};
            double bound = 0.895 + 0.670 + bytes / 388e3; /* as measured by gpu_01_terms */
            for (auto &form : forms)
                for (int threads : {16, 32, 64, 128, 256, 512}) {
                    size_t tile = (size_t)threads * form.vectors * 16, full = bytes / tile;
                    if (bytes % tile)
                        continue;
                    for (int cap : {1, 2, 4, 8, 16, 32, 64, 128, 132, 256}) {
                        if (form.loop ? (cap < 64 || threads < 128 || (size_t)cap * 2 > full)
                                      : (size_t)cap != full)
                            continue;
                        if (devices == 1 && cap > 32)
                            continue;
                        int nodes = bytes >= (2u << 20) ? 20 : bytes >= 65536 ? 50 : 100;
                        double us[2];
                        unsigned long long wrong = 0;
                        for (int pdl = 0; pdl < 2; pdl++) {
                            us[pdl] = rig_time(r, nodes, 5, [&](int i, int) {
                                rig_rank &k = r.ranks[i];
                                struct sol_tail tail = {};
                                tail.story.bytes = bytes;
                                if (op == 0) {
                                    struct sol_one_shot_args a = {};
                                    a.own = a.first = in[i], a.recv = out[i];
                                    a.bytes = (uint32_t)bytes, a.receives = 1;
                                    rig_launch(form.reduce, cap, threads, k.stream, pdl, a,
                                               sol_link_of(&k.comm), tail);
                                } else {
                                    struct sol_push_args a = {};
                                    a.own = a.first = in[i], a.bytes = (uint32_t)bytes;
                                    a.own_to = out[i] + i * bytes, a.copy = 1;
                                    a.recv_first = out[i] + (1 - i) * bytes;
                                    a.recv_stride = bytes, a.to = a.from = 1;

                                    rig_launch(form.move, cap, threads, k.stream, pdl, a,
                                               sol_link_of(&k.comm), tail);
                                }
                            });
                            if (rig_faults(r, "search"))
                                return 1;
                            for (int i = 0; i < 2; i++) {
                                CHECK(cudaSetDevice(r.ranks[i].device));
                                *count = 0;
                                differ_kernel<<<64, 256>>>((uint64_t *)out[i], (uint64_t *)want[i],
                                                           bytes / 8 * (op + 1), count);
                                CHECK(cudaDeviceSynchronize());
                                wrong += *count;
                                CHECK(cudaMemset(out[i], 0xff, bytes * (op + 1)));
                                CHECK(cudaDeviceSynchronize());
                            }
                            if (us[pdl] < best[pdl]) {
                                best[pdl] = us[pdl];
                                snprintf(shape[pdl], 64, "%dx%dx%d%s", cap, threads, form.vectors,
                                         form.loop ? " loop" : "");
                            }
                        }
                        printf("%s %8zu %3dx%3dx%d%s plain %7.3f pdl %7.3f wrong %llu\n",
                               op ? "AG" : "AR", bytes, cap, threads, form.vectors,
                               form.loop ? " loop" : "", us[0], us[1], wrong);
                    }
                }
            printf("BEST %s %8zu bound %.3f plain %.3f (%.3f) %s pdl %.3f (%.3f) %s\n",
                   op ? "AG" : "AR", bytes, bound, best[0], best[0] / bound, shape[0], best[1],
                   best[1] / bound, shape[1]);
            fflush(stdout);
        }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_litmus: does the emulator do what it says? Small kernels whose outcomes
 * PTX allows or forbids, and small faults that must be reported, by their words
 * and their line. An emulator that is too kind finds nothing; one that is too
 * strict cries wolf.
 *
 * Each test runs under many seeds. MUST_SEE: an outcome that memory may show,
 * and that a test of anything else therefore has to meet. NEVER: one that fences
 * forbid.
 */
#include "cuda_runtime.h"
#include "emu/emu.h"
#include "solccl/device/ptx.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIALS 300

/* Two words on different devices, a place for results, and a spare array. */
struct field {
    uint64_t *x, *y;
    uint64_t *out;
    uint64_t *array; /* 1024 words on device 0 */
    int role;        /* the device that runs the kernel */
};

static int passed, failed;

static void say(const char *name, bool good, const char *why)
{
    printf("%s %s%s%s\n", good ? "ok" : "FAILED", name, *why ? ": " : "", why);
    passed += good;
    failed += !good;
}

static struct field make_field(uint64_t seed, bool time_passes)
{
    struct emu_options options;
    struct field f;
    memset(&options, 0, sizeof options);
    options.seed = seed;
    options.sms = 2;
    options.time_passes = time_passes;
    emu_open(&options);
    cudaSetDevice(1);
    cudaMalloc(&f.y, 16);
    cudaMemset(f.y, 0, 16);
    cudaSetDevice(0);
    cudaMalloc(&f.x, 16);
    cudaMalloc(&f.out, 64);
    cudaMalloc(&f.array, 8192);
    cudaMemset(f.x, 0, 16);
    cudaMemset(f.out, 0, 64);
    cudaMemset(f.array, 0, 8192);
    return f;
}

template <class K>
static void launch(K *kernel, const struct field &f, int device, int ctas, int threads,
                   bool early = false)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute;
    struct field mine = f;
    mine.role = device;
    cudaSetDevice(device);
    config.gridDim = dim3((unsigned)ctas);
    config.blockDim = dim3((unsigned)threads);
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = early;
    config.attrs = &attribute;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, kernel, mine);
}

static void wait_all(void)
{
    for (int d = 0; d < 2; d++) {
        cudaSetDevice(d);
        cudaDeviceSynchronize();
    }
}

/* ------------------------------------------------------------------ outcomes */

typedef void kernel_t(struct field);
enum verdict { MUST_SEE, NEVER };

/* Runs on both devices, one thread each, and counts trials that end with out = (a, b). */
static void outcome(const char *name, kernel_t *kernel, uint64_t a, uint64_t b, enum verdict v,
                    int threads = 1)
{
    int seen = 0;
    for (uint64_t seed = 1; seed <= TRIALS; seed++) {
        struct field f = make_field(seed, false);
        launch(kernel, f, 0, 1, threads);
        launch(kernel, f, 1, 1, threads);
        wait_all();
        if (emu_failed()) {
            say(name, false, emu_report());
            return;
        }
        seen += f.out[0] == a && f.out[1] == b;
    }
    say(name, v == NEVER ? seen == 0 : seen > 0,
        v == NEVER ? (seen ? "seen, but forbidden" : "") : (seen ? "" : "allowed, but never seen"));
}

static __global__ void message_relaxed(struct field f)
{
    if (f.role == 0) {
        sol_push_word(f.x, 1);
        sol_push_word(f.y, 1);
    } else {
        f.out[0] = sol_poll_word(f.y);
        f.out[1] = sol_poll_word(f.x);
    }
}

static __global__ void message_fenced(struct field f)
{
    if (f.role == 0) {
        sol_push_word(f.x, 1);
        sol_fence_system();
        sol_push_word(f.y, 1);
    } else {
        f.out[0] = sol_poll_word(f.y);
        sol_fence_system();
        f.out[1] = sol_poll_word(f.x);
    }
}

static __global__ void message_released_only(struct field f)
{
    if (f.role == 0) {
        sol_push_word(f.x, 1);
        sol_fence_system();
        sol_push_word(f.y, 1);
    } else {
        f.out[0] = sol_poll_word(f.y);
        f.out[1] = sol_poll_word(f.x);
    }
}

static __global__ void message_acquired(struct field f)
{
    if (f.role == 0) {
        sol_push_word(f.x, 1);
        sol_fence_system();
        sol_push_word(f.y, 1);
    } else {
        f.out[0] = sol_poll_word_acquire(f.y);
        f.out[1] = sol_poll_word(f.x);
    }
}

static __global__ void message_gpu_scope(struct field f)
{
    if (f.role == 0) {
        sol_push_word(f.x, 1);
        __threadfence();
        sol_push_word(f.y, 1);
    } else {
        f.out[0] = sol_poll_word_acquire(f.y);
        f.out[1] = sol_poll_word(f.x);
    }
}

/* A thread stores, another one of its CTA publishes; a thread sees it, another one of its CTA
 * loads. */
static __global__ void message_through_barriers(struct field f)
{
    if (f.role == 0) {
        if (threadIdx.x == 5)
            sol_push_word(f.x, 1);
        __syncthreads();
        if (threadIdx.x == 0) {
            sol_fence_system();
            sol_push_word(f.y, 1);
        }
    } else {
        if (threadIdx.x == 0)
            f.out[0] = sol_poll_word_acquire(f.y);
        __syncthreads();
        if (threadIdx.x == 5)
            f.out[1] = sol_poll_word(f.x);
    }
}

static __global__ void torn_vector(struct field f)
{
    if (f.role == 0) {
        struct sol_vector v = {1, 1};
        sol_push_vector(f.x, v);
    } else {
        struct sol_vector v = sol_poll_vector(f.x);
        f.out[0] = v.a;
        f.out[1] = v.b;
    }
}

static __global__ void coherent(struct field f)
{
    if (f.role == 0) {
        sol_push_word(f.x, 1);
        sol_push_word(f.x, 2);
    } else {
        f.out[0] = sol_poll_word(f.x);
        f.out[1] = sol_poll_word(f.x);
    }
}

static __global__ void both_write(struct field f)
{
    sol_push_word(f.x, f.role == 0 ? 1 : 2);
    sol_push_word(f.y, f.role == 0 ? 1 : 2);
    sol_fence_system();
    emu_rmw(&f.out[2], 8, EMU_ADD, 1, 0, EMU_ACQ_REL, EMU_SYS);
    while (sol_poll_word_acquire(&f.out[2]) != 2) {
    }
    if (f.role == 0)
        f.out[0] = sol_poll_word(f.x);
    else
        f.out[1] = sol_poll_word(f.y);
}

static __global__ void store_buffering(struct field f)
{
    sol_push_word(f.role == 0 ? f.x : f.y, 1);
    f.out[f.role] = sol_poll_word(f.role == 0 ? f.y : f.x);
}

/* ------------------------------------------------------------------- faults */

/* The kernel runs on both devices. `words`: must be in the report, all of them; NULL: no fault. */
static void fault(const char *name, kernel_t *kernel, int ctas, int threads,
                  const char *const *words)
{
    const char *why = "";
    int reported = 0;
    for (uint64_t seed = 1; seed <= TRIALS / 10; seed++) {
        struct field f = make_field(seed, false);
        launch(kernel, f, 0, ctas, threads);
        launch(kernel, f, 1, ctas, threads);
        wait_all();
        if (!emu_failed())
            continue;
        reported++;
        for (int i = 0; words && words[i]; i++)
            if (!strstr(emu_report(), words[i]))
                why = words[i];
        if (!words)
            why = emu_report();
    }
    bool good = words ? reported > 0 && !*why : reported == 0;
    if (words && !reported)
        why = "not found";
    say(name, good, why);
}

static __global__ void plain_unfenced(struct field f)
{
    if (f.role == 0) {
        f.array[1] = 7;
        sol_push_word(f.y, 1);
    } else {
        while (sol_poll_word(f.y) == 0) {
        }
        f.out[0] = f.array[1];
    }
}

static __global__ void plain_fenced(struct field f)
{
    if (f.role == 0) {
        f.array[1] = 7;
        sol_fence_system();
        sol_push_word(f.y, 1);
    } else {
        while (sol_poll_word(f.y) == 0) {
        }
        sol_fence_system();
        if (f.array[1] != 7)
            emu_trap("stale");
    }
}

static __global__ void shared_unsynchronised(struct field f)
{
    typedef uint64_t words[64];
    SOL_SHARED(words, s);
    (void)f;
    s[threadIdx.x] = 0;
    __syncthreads();
    s[threadIdx.x] = threadIdx.x;
    if (s[63 - threadIdx.x] == 99)
        emu_trap("no");
}

static __global__ void shared_synchronised(struct field f)
{
    typedef uint64_t words[64];
    SOL_SHARED(words, s);
    (void)f;
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (s[63 - threadIdx.x] != 63 - threadIdx.x)
        emu_trap("wrong");
}

static __global__ void warp_synchronised(struct field f)
{
    typedef uint64_t words[64];
    SOL_SHARED(words, s);
    (void)f;
    s[threadIdx.x] = threadIdx.x;
    __syncwarp();
    if (s[threadIdx.x ^ 31] != (threadIdx.x ^ 31))
        emu_trap("wrong");
}

static __global__ void nobody_answers(struct field f)
{
    while (f.role == 0 && sol_poll_word(f.x) == 0) {
    }
}

static __global__ void barrier_without_one(struct field f)
{
    if (threadIdx.x == 3)
        while (sol_poll_word(f.x) == 0) {
        }
    __syncthreads();
}

static __global__ void exited_do_not_count(struct field f)
{
    (void)f;
    if (threadIdx.x >= 32)
        return;
    __syncthreads();
}

/* Needs all its CTAs at once. */
static __global__ void all_meet(struct field f)
{
    uint64_t *counter = f.role == 0 ? f.x : f.y;
    if (threadIdx.x == 0) {
        emu_rmw(counter, 8, EMU_ADD, 1, 0, EMU_ACQ_REL, EMU_GPU);
        while (sol_poll_word_acquire(counter) != gridDim.x) {
        }
    }
    __syncthreads();
}

static __global__ void outside(struct field f)
{
    f.array[1024 + threadIdx.x] = 1;
}

static __global__ void misaligned(struct field f)
{
    sol_poll_vector(f.array + 1);
}

static __global__ void votes_and_shuffles(struct field f)
{
    unsigned t = threadIdx.x, lane = t & 31;
    (void)f;
    if (__ballot_sync(~0u, lane % 3 == 0) != 0x49249249u || !__any_sync(~0u, lane == 7) ||
        __all_sync(~0u, lane != 7))
        emu_trap("vote");
    if (__shfl_sync(~0u, t, 5) != (t & ~31u) + 5 || __shfl_xor_sync(~0u, t, 3) != (t ^ 3) ||
        __shfl_down_sync(~0u, lane, 1) != (lane == 31 ? 31 : lane + 1) ||
        __shfl_up_sync(~0u, lane, 4) != (lane < 4 ? lane : lane - 4) ||
        __shfl_xor_sync(~0u, 1.5f * (float)lane, 8, 16) != 1.5f * (float)(lane ^ 8))
        emu_trap("shuffle");
    if (__syncthreads_count(t < 10) != 10 || !__syncthreads_or(t == 63) ||
        __syncthreads_and(t != 63))
        emu_trap("barrier's vote");
}

static __global__ void lane_missing(struct field f)
{
    (void)f;
    if (threadIdx.x != 9)
        __syncwarp(~0u);
}

static __global__ void atomics(struct field f)
{
    uint32_t *sum = (uint32_t *)f.array;
    if (f.role == 0) {
        atomicAdd(sum, threadIdx.x);
        atomicMax(sum + 2, threadIdx.x + 100 * blockIdx.x);
        atomicCAS(sum + 4, 0u, threadIdx.x + 1);
    }
}

/* ------------------------------------------------------------ single tests */

static __global__ void write_late(struct field f)
{
    emu_admit_successor();
    if (threadIdx.x == 0 && blockIdx.x == 1)
        f.array[3] = 42;
}
static __global__ void read_awaited(struct field f)
{
    emu_await_predecessors();
    f.out[threadIdx.x] = f.array[3];
}
static __global__ void read_early(struct field f)
{
    f.out[threadIdx.x] = f.array[3];
    emu_await_predecessors();
}

static void test_dependent_launch(void)
{
    int raced = 0;
    bool right = true;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct field f = make_field(seed, false);
        launch(write_late, f, 0, 2, 32);
        launch(read_awaited, f, 0, 1, 2, true);
        wait_all();
        right = right && !emu_failed() && f.out[1] == 42;
        f = make_field(seed, false);
        launch(write_late, f, 0, 2, 32);
        launch(read_early, f, 0, 1, 2, true);
        wait_all();
        raced += emu_failed() && strstr(emu_report(), "data race") != NULL;
    }
    say("dependent launch, awaited", right, "");
    say("dependent launch, not awaited", raced > 0, raced ? "" : "never found");
}

static void test_atomics(void)
{
    struct field f = make_field(5, false);
    launch(atomics, f, 0, 4, 64);
    wait_all();
    const uint32_t *sum = (const uint32_t *)f.array;
    say("atomics", !emu_failed() && sum[0] == 4 * 2016 && sum[2] == 363 && sum[4] >= 1,
        emu_report());
}

static void test_unwritten(void)
{
    struct field f = make_field(5, false);
    uint64_t *fresh, copy;
    cudaSetDevice(0);
    cudaMalloc(&fresh, 64);
    bool first = emu_first_unwritten(fresh, 64) == 0 && emu_first_unwritten(f.x, 16) == 16;
    cudaMemcpy(&copy, fresh + 1, 8, cudaMemcpyDeviceToHost);
    say("unwritten memory is not copied",
        first && emu_failed() && strstr(emu_report(), "never written"), "");
}

static __global__ void gives_up(struct field f)
{
    uint64_t begin = sol_clock_ns();
    while (sol_poll_word(f.x) == 0)
        if (sol_clock_ns() - begin > 1000000000)
            return;
}

static void test_time(void)
{
    struct field f = make_field(5, true);
    launch(gives_up, f, 0, 1, 32);
    wait_all();
    say("time passes for who waits", !emu_failed(), emu_report());
}

/* What exited_do_not_count may do, with another barrier for those who go: nvcc's is aligned. */
static __global__ void divided_barrier(struct field f)
{
    if (threadIdx.x == 5) {
        __syncthreads();
        f.out[0] = 1;
        return;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        f.out[1] = 1;
}

static __global__ void add_one(struct field f)
{
    f.array[0]++;
}

static void test_graph(void)
{
    struct field f = make_field(5, false);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStream_t stream, other;
    cudaEvent_t event;
    cudaLaunchConfig_t config = {};
    cudaSetDevice(0);
    cudaStreamCreate(&stream);
    cudaStreamCreate(&other);
    cudaEventCreate(&event);
    config.gridDim = config.blockDim = dim3(1);
    config.stream = stream;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    cudaLaunchKernelEx(&config, add_one, f);
    cudaEventRecord(event, stream);
    cudaStreamWaitEvent(other, event, 0);
    config.stream = other;
    cudaLaunchKernelEx(&config, add_one, f);
    cudaEventRecord(event, other);
    cudaStreamWaitEvent(stream, event, 0);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&exec, graph, 0);
    bool none_yet = f.array[0] == 0;
    for (int i = 0; i < 3; i++)
        cudaGraphLaunch(exec, stream);
    cudaEvent_t done;
    cudaEventCreate(&done);
    cudaEventRecord(done, stream);
    cudaStreamWaitEvent(other, done, 0);
    cudaLaunchKernelEx(&config, add_one, f);
    cudaStreamSynchronize(other);
    say("graphs, events", none_yet && !emu_failed() && f.array[0] == 7, emu_report());
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaEventDestroy(event);
    cudaEventDestroy(done);
    cudaStreamDestroy(stream);
    cudaStreamDestroy(other);
}

static void test_repeats(void)
{
    uint64_t steps[2], values[2];
    for (int i = 0; i < 2; i++) {
        struct field f = make_field(77, false);
        launch(message_relaxed, f, 0, 1, 1);
        launch(message_relaxed, f, 1, 1, 1);
        launch(votes_and_shuffles, f, 0, 4, 64);
        wait_all();
        steps[i] = emu_counts().steps * 1000 + emu_counts().switches;
        values[i] = f.out[0] * 2 + f.out[1];
    }
    say("a seed repeats its run", steps[0] == steps[1] && values[0] == values[1], "");
}

#define WORDS(...)                                                                                 \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static void test_outcomes(void)
{
    outcome("flag overtakes data", message_relaxed, 1, 0, MUST_SEE);
    outcome("both seen", message_relaxed, 1, 1, MUST_SEE);
    outcome("fences on both sides order", message_fenced, 1, 0, NEVER);
    outcome("a release alone does not", message_released_only, 1, 0, MUST_SEE);
    outcome("release and acquire order", message_acquired, 1, 0, NEVER);
    outcome("a fence of the GPU does not reach another", message_gpu_scope, 1, 0, MUST_SEE);
    outcome("barriers pass it on", message_through_barriers, 1, 0, NEVER, 32);
    outcome("a vector is torn, low first", torn_vector, 1, 0, MUST_SEE);
    outcome("a vector is torn, high first", torn_vector, 0, 1, MUST_SEE);
    outcome("a word does not go back", coherent, 2, 1, NEVER);
    outcome("nor to the start", coherent, 1, 0, NEVER);
    outcome("words are apart, 1 2", both_write, 1, 2, MUST_SEE);
    outcome("words are apart, 2 1", both_write, 2, 1, MUST_SEE);
    outcome("own store, peer's not yet", store_buffering, 0, 0, MUST_SEE);
}

static void test_faults(void)
{
    fault("plain data, flag without fence", plain_unfenced, 1, 1,
          WORDS("data race", "plain_unfenced", "emu_litmus.cu:"));
    fault("plain data, fences", plain_fenced, 1, 1, NULL);
    fault("shared memory without barrier", shared_unsynchronised, 2, 64,
          WORDS("data race", "shared memory"));
    fault("shared memory with barrier", shared_synchronised, 2, 64, NULL);
    fault("shared memory with a warp's barrier", warp_synchronised, 2, 64, NULL);
    fault("nobody answers", nobody_answers, 1, 2, WORDS("deadlock", "nobody_answers", "wait for"));
    fault("barrier without one", barrier_without_one, 1, 32,
          WORDS("deadlock", "31 threads", "__syncthreads"));
    fault("exited threads do not count", exited_do_not_count, 1, 64, NULL);
    fault("a warp at two barriers", divided_barrier, 1, 32,
          WORDS("different __syncthreads", "divided_barrier", "emu_litmus.cu:"));
    fault("more CTAs than fit", all_meet, 5, 32,
          WORDS("deadlock", "1 of its 5 blocks found no room"));
    fault("as many CTAs as fit", all_meet, 4, 32, NULL);
    fault("outside", outside, 1, 1, WORDS("which has 8192 bytes", "outside"));
    fault("misaligned", misaligned, 1, 1, WORDS("misaligned"));
    fault("votes and shuffles", votes_and_shuffles, 2, 64, NULL);
    fault("a lane is missing", lane_missing, 1, 32, WORDS("lane_missing"));
}

int main(void)
{
    test_outcomes();
    test_faults();
    test_dependent_launch();
    test_atomics();
    test_unwritten();
    test_time();
    test_graph();
    test_repeats();
    emu_close();
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}

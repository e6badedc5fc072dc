/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_enqueue: what a call on GPU ranks costs the host. Two ranks of the whole
 * library on the emulated machine; the linker puts the counters below in front of
 * the runtime's functions (--wrap).
 *
 *   emu_enqueue          which runtime calls an operation makes: no more than are
 *                        listed here, whatever the machine
 *   emu_enqueue --time   nanoseconds a call of our own code, over a runtime that
 *                        does nothing (launches too); not a test
 *
 * On a GPU the runtime's own time comes on top: tests/gpu --case host-time.
 */
#include "common/team.h"
#include "emu/emu_machine.h"

#include <cuda_runtime_api.h>
#include <solccl/solccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 64
#define ROUNDS 50
#define CALLS 2000

enum call { DEVICE, POINTER, CAPTURE, STREAM_ID, LAUNCH, RECORD, WAIT, CALLS_KNOWN };
static const char *const names[] = {
    "cudaGetDevice", "cudaPointerGetAttributes", "cudaStreamGetCaptureInfo", "cudaStreamGetId",
    "a launch",      "cudaEventRecord",          "cudaStreamWaitEvent"};
static _Thread_local int made[CALLS_KNOWN];
static _Thread_local bool idle; /* the runtime does nothing for this thread */

/* Each counts, and does what the runtime does unless that is to do nothing. */
#define WRAP(name, which, parameters, arguments, instead)                                          \
    cudaError_t __real_##name parameters;                                                          \
    cudaError_t __wrap_##name parameters;                                                          \
    cudaError_t __wrap_##name parameters                                                           \
    {                                                                                              \
        made[which]++;                                                                             \
        if (!idle) {                                                                               \
            return __real_##name arguments;                                                        \
        }                                                                                          \
        instead;                                                                                   \
        return cudaSuccess;                                                                        \
    }

WRAP(cudaGetDevice, DEVICE, (int *device), (device), *device = 0)
WRAP(cudaPointerGetAttributes, POINTER,
     (struct cudaPointerAttributes * attributes, const void *pointer), (attributes, pointer),
     memset(attributes, 0, sizeof *attributes))
WRAP(cudaStreamGetCaptureInfo, CAPTURE,
     (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
      cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
      size_t *count),
     (stream, status, id, graph, nodes, edges, count), *status = cudaStreamCaptureStatusNone)
WRAP(cudaStreamGetId, STREAM_ID, (cudaStream_t stream, unsigned long long *id), (stream, id),
     *id = 1)
WRAP(cudaEventRecord, RECORD, (cudaEvent_t event, cudaStream_t stream), (event, stream), (void)0)
WRAP(cudaStreamWaitEvent, WAIT, (cudaStream_t stream, cudaEvent_t event, unsigned flags),
     (stream, event, flags), (void)0)

int __real_emu_enqueue(const void *kernel, void (*invoke)(const void *), void *arguments,
                       void (*release)(void *), struct emu_dim grid, struct emu_dim block,
                       unsigned cluster, size_t shared, bool early, void *stream);
int __wrap_emu_enqueue(const void *kernel, void (*invoke)(const void *), void *arguments,
                       void (*release)(void *), struct emu_dim grid, struct emu_dim block,
                       unsigned cluster, size_t shared, bool early, void *stream);
int __wrap_emu_enqueue(const void *kernel, void (*invoke)(const void *), void *arguments,
                       void (*release)(void *), struct emu_dim grid, struct emu_dim block,
                       unsigned cluster, size_t shared, bool early, void *stream)
{
    made[LAUNCH]++;
    if (idle) {
        release(arguments);
        return 0;
    }
    return __real_emu_enqueue(kernel, invoke, arguments, release, grid, block, cluster, shared,
                              early, stream);
}

/* ------------------------------------------------------------------------- operations */

struct rank {
    team_t *team;
    int number;
    sol_comm_t comm;
    cudaStream_t stream, other;
    float *send, *recv;
};

static sol_status_t all_reduce(struct rank *r, cudaStream_t stream)
{
    return sol_all_reduce(r->send, r->recv, COUNT, SOL_FLOAT32, SOL_SUM, r->comm, stream);
}
static sol_status_t all_gather(struct rank *r, cudaStream_t stream)
{
    return sol_all_gather(r->send, r->recv, COUNT, SOL_FLOAT32, r->comm, stream);
}
static sol_status_t reduce_scatter(struct rank *r, cudaStream_t stream)
{
    return sol_reduce_scatter(r->send, r->recv, COUNT, SOL_FLOAT32, SOL_SUM, r->comm, stream);
}
static sol_status_t all_to_all(struct rank *r, cudaStream_t stream)
{
    return sol_all_to_all(r->send, r->recv, COUNT, SOL_FLOAT32, r->comm, stream);
}
static sol_status_t broadcast(struct rank *r, cudaStream_t stream)
{
    return sol_broadcast(r->send, r->recv, COUNT, SOL_FLOAT32, 0, r->comm, stream);
}
static sol_status_t barrier(struct rank *r, cudaStream_t stream)
{
    return sol_barrier(r->comm, stream);
}

static const struct {
    const char *name;
    sol_status_t (*run)(struct rank *r, cudaStream_t stream);
} operations[] = {{"all_reduce", all_reduce},         {"all_gather", all_gather},
                  {"reduce_scatter", reduce_scatter}, {"all_to_all", all_to_all},
                  {"broadcast", broadcast},           {"barrier", barrier}};
#define OPERATIONS (sizeof operations / sizeof operations[0])

/* ------------------------------------------------------------------------------ counts */

/* One call made exactly these runtime calls. */
static void expect(struct rank *r, const char *what, const int *wanted)
{
    for (int c = 0; c < CALLS_KNOWN; c++) {
        if (made[c] != wanted[c]) {
            team_fail(r->team, r->number, "%s: %d calls of %s: expected %d", what, made[c],
                      names[c], wanted[c]);
        }
    }
}

static void count_calls(struct rank *r)
{
    static const int first[CALLS_KNOWN] = {1, 1, 1, 1, 1, 1, 0}; /* both buffers in one piece */
    static const int again[CALLS_KNOWN] = {1, 0, 1, 1, 1, 1, 0};
    static const int moved[CALLS_KNOWN] = {1, 0, 1, 1, 1, 1, 1}; /* to another stream */
    for (size_t i = 0; i < OPERATIONS; i++) {
        memset(made, 0, sizeof made);
        TEAM_OK(r->team, r->number, operations[i].run(r, r->stream), r->comm);
        expect(r, operations[i].name, i == 0 ? first : again);
    }
    memset(made, 0, sizeof made);
    TEAM_OK(r->team, r->number, all_reduce(r, r->other), r->comm);
    expect(r, "all_reduce on another stream", moved);
}

/* -------------------------------------------------------------------------------- time */

static void time_calls(struct rank *r)
{
    idle = true;
    for (size_t i = 0; i < OPERATIONS && r->number == 0; i++) {
        double best = 1e9;
        for (int round = 0; round < ROUNDS; round++) {
            double begin = team_now();
            for (int k = 0; k < CALLS; k++) {
                if (operations[i].run(r, r->stream) != SOL_OK) {
                    team_fail(r->team, 0, "%s: %s", operations[i].name, sol_last_error(r->comm));
                    break;
                }
            }
            double took = (team_now() - begin) / CALLS;
            best = took < best ? took : best;
        }
        printf("%-16s %6.0f ns\n", operations[i].name, best * 1e9);
    }
    idle = false;
}

static void rank_main(team_t *team, int number, void *arg)
{
    struct rank r = {.team = team, .number = number};
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    config.backend = SOL_BACKEND_CUDA;
    config.staging_bytes = 65536; /* the emulated GPU clears it word by word */
    void *memory = NULL;
    cudaSetDevice(number);
    cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&r.other, cudaStreamNonBlocking);
    if (cudaMalloc(&memory, 16 * COUNT) == cudaSuccess &&
        TEAM_OK(team, number, sol_comm_create(&r.comm, &team->ids[0], 2, number, &config), NULL)) {
        r.send = memory;
        r.recv = r.send + 2 * COUNT; /* all_gather's two blocks */
        cudaMemset(memory, 0, 16 * COUNT);
        count_calls(&r);
        cudaStreamSynchronize(r.stream);
        cudaStreamSynchronize(r.other);
        team_barrier(team);
        if (arg != NULL) {
            time_calls(&r);
        }
        team_barrier(team);
        TEAM_OK(team, number, sol_comm_destroy(r.comm), NULL);
    }
    cudaFree(memory);
    cudaStreamDestroy(r.stream);
    cudaStreamDestroy(r.other);
}

int main(int argc, char **argv)
{
    struct emu_options options = {.seed = 1, .devices = 8, .sms = 8, .threads = true};
    bool timed = argc > 1 && strcmp(argv[1], "--time") == 0;
    if (!emu_open(&options)) {
        fputs("emu_enqueue: the system refused memory\n", stderr);
        return 2;
    }
    team_options_t team = {
        .name = "enqueue", .nranks = 2, .threads = true, .here = true, .deadline_s = 60};
    int failures = team_run(&team, rank_main, timed ? argv : NULL, NULL);
    if (emu_failed()) {
        fputs(emu_report(), stdout);
        failures++;
    }
    emu_close();
    printf("%d passed, %d failed\n", failures == 0, failures != 0);
    return failures != 0;
}

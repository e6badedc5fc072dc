/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_transfer.c: solccl/transfer.h on GPU ranks. Regions and counters lie in
 * symmetric memory. A write goes through a kernel, or, where it is large, through
 * the copy engine, which is somewhat faster on the link and takes no
 * multiprocessor; the count follows on the same stream.
 *
 * SOLCCL_CUDA_TRANSFER=auto|kernel|copy, SOLCCL_CUDA_TRANSFER_COPY_BYTES and
 * SOLCCL_CUDA_TRANSFER_CTAS change the plan.
 */
#include "backend/cuda/cuda_state.h"
#include "core/transfer.h"
#include "device/kernels/transfer_launch.h"

#include <pthread.h>
#include <string.h>

/* One copy costs the engine about 2 us before its first byte, and gains 6 % of the link: it wins
 * from some 10 MB on. Worked out from bench/NOTES.md, not measured yet. */
#define COPY_BYTES ((size_t)16 << 20)

struct transfer_state {
    pthread_mutex_t lock; /* of looks, which any thread may take */
    cudaStream_t looks;   /* for the host's looks at the counters */
    size_t copy_from;     /* pages of so many bytes take the copy engine; SIZE_MAX: none */
    struct sol_gpu_transfer_shape shape;
};

static const struct sol_cuda_region *region_of(const struct sol_cuda *state, uint64_t id)
{
    const struct sol_cuda_region *region = state->regions;
    while (region != NULL && region->id != id) {
        region = region->next;
    }
    return region;
}

sol_status_t sol_cuda_transfer_offer(sol_comm_t comm, void *memory, size_t bytes,
                                     sol_place_t *place)
{
    const struct sol_cuda *state = sol_cuda_of(comm);
    for (const struct sol_cuda_region *r = state->regions; r != NULL; r = r->next) {
        uintptr_t base = (uintptr_t)r->memory.base[comm->rank], at = (uintptr_t)memory;
        if (at >= base && bytes <= r->memory.bytes && at - base <= r->memory.bytes - bytes) {
            *place = (sol_place_t){.bytes = bytes, .where = at - base, .id = r->id};
            return SOL_OK;
        }
    }
    return sol_thread_error(SOL_ERR_UNSUPPORTED,
                            "%zu bytes at %p are not within memory of sol_mem_alloc on this "
                            "communicator: other GPUs reach no other",
                            bytes, memory);
}

/* -------------------------------------------------------------------------- open, close */

static sol_status_t read_plan(struct transfer_state *own, char *why, size_t why_bytes)
{
    static const char *const choices[] = {"auto", "kernel", "copy", NULL};
    int wanted = 0;
    long ctas = 0;
    size_t copy = COPY_BYTES;
    sol_status_t status = sol_env_choice("SOLCCL_CUDA_TRANSFER", choices, &wanted, why, why_bytes);
    if (status == SOL_OK) {
        status =
            sol_env_size("SOLCCL_CUDA_TRANSFER_COPY_BYTES", 1, SIZE_MAX / 2, &copy, why, why_bytes);
    }
    if (status == SOL_OK) {
        status = sol_env_int("SOLCCL_CUDA_TRANSFER_CTAS", 1, 1024, &ctas, why, why_bytes);
    }
    own->copy_from = wanted == 0 ? copy : wanted == 1 ? SIZE_MAX : 1;
    own->shape.ctas = (int)ctas;
    return status;
}

static sol_status_t map_regions(sol_comm_t comm, struct sol_transfer *t, const sol_place_t *places)
{
    const struct sol_cuda *state = sol_cuda_of(comm);
    for (int r = 0; r < comm->nranks; r++) {
        for (int i = 0; i <= t->nregions; i++) {
            const sol_place_t *place = &places[(size_t)r * (1 + (size_t)t->nregions) + (size_t)i];
            const struct sol_cuda_region *region =
                place->bytes > 0 ? region_of(state, place->id) : NULL;
            char *base = region != NULL ? region->memory.base[r] + place->where : NULL;
            if (place->bytes > 0 && region == NULL) {
                return sol_comm_error(comm, SOL_ERR_UNSUPPORTED,
                                      "sol_transfer_create: regions[%d] of rank %d is in memory "
                                      "that this rank has freed",
                                      i - 1, r);
            }
            if (i == 0) {
                t->controls[r] = base;
            } else {
                t->far[(size_t)r * (size_t)t->nregions + (size_t)(i - 1)] =
                    (sol_far_t){.bytes = place->bytes, .base = base};
            }
        }
    }
    return SOL_OK;
}

/* All ranks come here together: so all leave an SM alone, from the same operation on. A grid of
 * theirs that fills every SM, and waits, could otherwise wait for the room of an await that waits
 * for a write behind it. */
static void leave_room(struct sol_cuda *state)
{
    if (!state->room_left && state->gpu.max_ctas > 1) {
        state->gpu.max_ctas--;
    }
    state->room_left = 1;
}

sol_status_t sol_cuda_transfer_open(sol_comm_t comm, struct sol_transfer *t,
                                    const sol_place_t *places)
{
    struct sol_cuda *state = sol_cuda_of(comm);
    struct sol_cuda_device_scope scope;
    char why[256];
    leave_room(state);
    struct transfer_state *own = sol_calloc(1, sizeof *own);
    if (own == NULL) {
        return sol_comm_error(comm, SOL_ERR_MEMORY, "sol_transfer_create: no memory");
    }
    sol_status_t status = read_plan(own, why, sizeof why);
    status = status == SOL_OK ? map_regions(comm, t, places)
                              : sol_comm_error(comm, status, "sol_transfer_create: %s", why);
    if (status == SOL_OK) {
        enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
        cudaThreadExchangeStreamCaptureMode(&mode);
        cudaError_t error = sol_cuda_enter(state->device, &scope);
        if (error == cudaSuccess) {
            error = cudaStreamCreateWithFlags(&own->looks, cudaStreamNonBlocking);
            sol_cuda_leave(&scope);
        }
        cudaThreadExchangeStreamCaptureMode(&mode);
        if (error != cudaSuccess) {
            status = sol_comm_error(comm, SOL_ERR_DEVICE, "sol_transfer_create: %s",
                                    cudaGetErrorString(error));
        }
    }
    if (status != SOL_OK) {
        sol_free(own);
        return status;
    }
    pthread_mutex_init(&own->lock, NULL);
    t->state = own;
    return SOL_OK;
}

void sol_cuda_transfer_close(sol_comm_t comm, struct sol_transfer *t)
{
    struct transfer_state *own = t->state;
    cudaStreamDestroy(own->looks);
    pthread_mutex_destroy(&own->lock);
    (void)sol_cuda_mem_free(comm, t->control);
    sol_free(own);
}

/* ------------------------------------------------------------------------------ writing */

static sol_status_t cuda_failed(sol_comm_t comm, const char *who, cudaError_t error)
{
    cudaGetLastError();
    return sol_comm_fail(comm, SOL_ERR_DEVICE, "%s: %s (%s)", who, cudaGetErrorString(error),
                         cudaGetErrorName(error));
}

/* Where the first page of each entry comes from: can this GPU read it? */
static sol_status_t check_sources(sol_comm_t comm, struct sol_cuda *state,
                                  const sol_transfer_work_t *work)
{
    char why[256];
    for (size_t i = 0; i < work->n; i++) {
        sol_transfer_set_t set;
        sol_transfer_set(work, i, &set);
        if (set.npages > 0 && set.bytes > 0 &&
            !sol_cuda_buffer_reachable(&state->buffers, sol_page_from(&set, 0), why, sizeof why)) {
            return sol_comm_error(comm, SOL_ERR_ARGUMENT, "sol_transfer_write: %s[%zu].from: %s",
                                  work->writes != NULL ? "writes" : "pages", i, why);
        }
    }
    return SOL_OK;
}

/* Pages by the copy engine; counted behind them all. */
static cudaError_t copy_set(struct sol_gpu_transfer *call, const sol_transfer_set_t *set,
                            char *region, sol_count_t count, cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    for (size_t page = 0; page < set->npages && error == cudaSuccess; page++) {
        error = cudaMemcpyAsync(region + sol_page_to(set, page), sol_page_from(set, page),
                                set->bytes, cudaMemcpyDefault, stream);
    }
    sol_gpu_transfer_owe(call, set->peer,
                         count == SOL_COUNT_WRITES ? set->npages : set->npages * set->bytes);
    return error;
}

static cudaError_t write_all(sol_comm_t comm, struct sol_transfer *t,
                             const sol_transfer_work_t *work)
{
    struct sol_cuda *state = sol_cuda_of(comm);
    const struct transfer_state *own = t->state;
    cudaStream_t stream = (cudaStream_t)work->stream;
    uint64_t *counters[SOL_GPU_MAX_RANKS] = {NULL};
    struct sol_gpu_transfer call;
    cudaError_t error = cudaSuccess;
    for (int r = 0; r < comm->nranks && work->counter != SOL_NO_COUNTER; r++) {
        counters[r] = sol_transfer_word(t, r, work->counter, comm->rank);
    }
    sol_gpu_transfer_begin(&call, &state->gpu, &own->shape, counters,
                           work->count == SOL_COUNT_BYTES, state->flags, stream);
    for (size_t i = 0; i < work->n && error == cudaSuccess; i++) {
        sol_transfer_set_t set;
        sol_transfer_set(work, i, &set);
        const sol_far_t *far = &t->far[(size_t)set.peer * (size_t)t->nregions + (size_t)set.region];
        if (set.bytes >= own->copy_from) {
            error = copy_set(&call, &set, far->base, work->count, stream);
            continue;
        }
        const struct sol_gpu_set pages = {.from = set.from,
                                          .to = far->base + set.offset,
                                          .bytes = set.bytes,
                                          .npages = set.npages,
                                          .from_stride = set.from_stride,
                                          .to_stride = set.to_stride,
                                          .from_pages = set.from_pages,
                                          .to_pages = set.to_pages,
                                          .peer = set.peer};
        sol_gpu_transfer_add(&call, &pages);
    }
    if (error != cudaSuccess) {
        return error;
    }
    return sol_gpu_transfer_end(&call);
}

sol_status_t sol_cuda_transfer_write(sol_comm_t comm, struct sol_transfer *t,
                                     const sol_transfer_work_t *work)
{
    struct sol_cuda *state = sol_cuda_of(comm);
    struct sol_cuda_device_scope scope;
    sol_status_t status = sol_cuda_still_healthy(comm, state);
    status = status == SOL_OK ? check_sources(comm, state, work) : status;
    if (status != SOL_OK) {
        return status;
    }
    cudaError_t error = sol_cuda_enter(state->device, &scope);
    if (error == cudaSuccess) {
        error = write_all(comm, t, work);
        sol_cuda_leave(&scope);
    }
    return error == cudaSuccess ? SOL_OK : cuda_failed(comm, "sol_transfer_write", error);
}

/* ------------------------------------------------------------------------------ waiting */

sol_status_t sol_cuda_transfer_await(sol_comm_t comm, struct sol_transfer *t, int counter, int from,
                                     uint64_t value, void *stream)
{
    struct sol_cuda *state = sol_cuda_of(comm);
    struct sol_cuda_device_scope scope;
    const struct sol_gpu_await await = {.words = sol_transfer_word(t, comm->rank, counter, 0),
                                        .value = value,
                                        .from = from,
                                        .counter = counter};
    sol_status_t status = sol_cuda_still_healthy(comm, state);
    if (status != SOL_OK) {
        return status;
    }
    cudaError_t error = sol_cuda_enter(state->device, &scope);
    if (error == cudaSuccess) {
        error = sol_gpu_transfer_await(&state->gpu, &await, state->flags, (cudaStream_t)stream);
        sol_cuda_leave(&scope);
    }
    return error == cudaSuccess ? SOL_OK : cuda_failed(comm, "sol_transfer_await", error);
}

/* By a kernel, which can acquire, on a stream that never waits for anything else. */
static sol_status_t look(sol_comm_t comm, struct sol_transfer *t, int counter, uint64_t *values)
{
    const struct transfer_state *own = t->state;
    uint64_t *seen = (uint64_t *)(void *)(t->control + sol_transfer_counter_bytes(t));
    cudaError_t error = sol_gpu_transfer_look(sol_transfer_word(t, comm->rank, counter, 0), seen,
                                              comm->nranks, own->looks);
    if (error == cudaSuccess) {
        error = cudaMemcpyAsync(values, seen, (size_t)comm->nranks * sizeof *values,
                                cudaMemcpyDeviceToHost, own->looks);
    }
    if (error != cudaSuccess) {
        return sol_comm_error(comm, SOL_ERR_DEVICE, "reading a counter: %s",
                              cudaGetErrorString(error));
    }
    sol_status_t status = sol_cuda_wait_stream(own->looks, comm->timeout_ns, "reading a counter");
    return status == SOL_OK ? SOL_OK : sol_comm_error(comm, status, "%s", sol_thread_error_text());
}

sol_status_t sol_cuda_transfer_read(sol_comm_t comm, struct sol_transfer *t, int counter,
                                    uint64_t *values)
{
    struct transfer_state *own = t->state;
    struct sol_cuda_device_scope scope;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaError_t error = sol_cuda_enter(sol_cuda_of(comm)->device, &scope);
    sol_status_t status = error == cudaSuccess
                              ? SOL_OK
                              : sol_comm_error(comm, SOL_ERR_DEVICE, "reading a counter: %s",
                                               cudaGetErrorString(error));
    if (status == SOL_OK) {
        pthread_mutex_lock(&own->lock);
        status = look(comm, t, counter, values);
        pthread_mutex_unlock(&own->lock);
        sol_cuda_leave(&scope);
    }
    cudaThreadExchangeStreamCaptureMode(&mode);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_mem_cpu.c: buffers and time of CPU ranks. Ours and every peer's ranks use
 * this same file: page-aligned memory of the process, touched by the rank itself.
 */
#include "perf_library.h"
#include "tool.h"

#include <string.h>

static bool copy(void *to, const void *from, size_t bytes)
{
    if (bytes)
        memcpy(to, from, bytes);
    return true;
}

static const void *host_view(const void *memory)
{
    return memory;
}

/*
 * Batches follow each other without a pause: the clock is read once between two of them, and a
 * sample is long against that reading (perf chooses the batch so).
 */
static bool time_batches(const perf_library_t *library, const perf_case_t *c, const void *send,
                         void *recv, size_t warm, size_t samples, size_t batch, bool alone,
                         double *ns, perf_error_t *error)
{
    uint64_t before, after;
    size_t i, first = 0;

    if (!library->barrier(error))
        return false;
    for (i = 0; i < warm; i++, first += batch)
        if (!library->batch(c, send, recv, first, batch, error))
            return false;
    before = tool_now_ns();
    for (i = 0; i < samples; i++, first += batch) {
        if (alone) {
            if (!library->barrier(error))
                return false;
            before = tool_now_ns();
        }
        if (!library->batch(c, send, recv, first, batch, error))
            return false;
        after = tool_now_ns();
        ns[i] = (double)(after - before);
        before = after;
    }
    return true;
}

const perf_device_t perf_device_cpu = {
    .name = "cpu",
    .alloc = tool_pages,
    .release = tool_free,
    .write = copy,
    .read = copy,
    .host_view = host_view,
    .time = time_batches,
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_tune.c: which way a rank makes its data readable, learned while running.
 *
 * Writing to a staging slot through the cache is best where the readers share
 * this core's last-level cache; past the cache where they do not, because the
 * lines that they still hold need not be taken from them one by one (measured:
 * 2.5 times slower the one way here, 2.5 times the other way there);
 * process_vm_readv saves the copy but costs system calls. Which holds cannot
 * be read from the topology that a virtual machine shows, and changes when the
 * host moves its CPUs. So in every PERIOD calls of one kind and size each way
 * is taken for a few, and the fastest for the rest.
 *
 * The way is this rank's own affair: it changes no result, and peers learn it
 * from headers. All ranks try the same way in the same call, since they count
 * the same calls.
 */
#include "backend/shm/shm.h"

#define PERIOD 256u
#define TRIES 4u          /* calls of a way in a row; the first one is not counted */
#define LEAST_BYTES 4096u /* sol_copy_stream passes by the cache from here on */

static bool usable(const sol_shm_t *s, sol_shm_way way)
{
    return way != SOL_SHM_SHOW || (s->vm_readable && s->direct);
}

static sol_shm_lesson_t *lesson_for(sol_shm_t *s, sol_func_t func, size_t bytes)
{
    unsigned size = bytes > 1 ? 63u - (unsigned)__builtin_clzll(bytes) : 0;
    return &s->lessons[func][size < SOL_SHM_SIZES ? size : SOL_SHM_SIZES - 1];
}

static void decide(const sol_shm_t *s, sol_shm_lesson_t *lesson)
{
    unsigned winner = SOL_SHM_KEEP;
    for (unsigned way = 0; way < SOL_SHM_WAYS; way++) {
        if (usable(s, (sol_shm_way)way) && lesson->best_ns[way] < lesson->best_ns[winner]) {
            winner = way;
        }
    }
    lesson->winner = (uint8_t)winner;
}

sol_shm_way sol_shm_tune_begin(sol_shm_t *s, sol_func_t func, size_t bytes)
{
    s->lesson = NULL;
    if (s->limits.way != 0) {
        sol_shm_way forced = (sol_shm_way)(s->limits.way - 1);
        return usable(s, forced) ? forced : SOL_SHM_KEEP;
    }
    if (bytes < LEAST_BYTES || s->all_threads) {
        return SOL_SHM_KEEP;
    }
    sol_shm_lesson_t *lesson = lesson_for(s, func, bytes);
    uint32_t at = lesson->calls++ % PERIOD;
    if (at == SOL_SHM_WAYS * TRIES) {
        decide(s, lesson);
    }
    if (at >= SOL_SHM_WAYS * TRIES) {
        return (sol_shm_way)lesson->winner;
    }
    s->way = (sol_shm_way)(at / TRIES);
    if (!usable(s, s->way)) {
        return SOL_SHM_KEEP;
    }
    if (at % TRIES == 0) {
        lesson->best_ns[s->way] = UINT32_MAX;
    } else {
        s->lesson = lesson;
        s->way_started_ns = sol_now_ns();
    }
    return s->way;
}

void sol_shm_tune_end(sol_shm_t *s)
{
    if (s->lesson == NULL) {
        return;
    }
    uint64_t ns = sol_now_ns() - s->way_started_ns;
    uint32_t capped = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX - 1;
    if (capped < s->lesson->best_ns[s->way]) {
        s->lesson->best_ns[s->way] = capped;
    }
    s->lesson = NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_tune.c: which way a rank makes its data readable, learned while running.
 *
 * Writing to a staging slot through the cache is best where the readers share
 * this core's last-level cache; past the cache where they do not, because the
 * lines that they still hold need not be taken from them one by one (measured:
 * 2.5 times slower the one way here, 2.5 times the other way there);
 * process_vm_readv saves the copy but costs system calls. From some size on
 * the copy of a rank's own block to its result is better past the cache too.
 * Which holds cannot be read from the topology that a virtual machine shows,
 * and changes when the host moves its CPUs. So in every period of calls of one
 * kind and size each plan is taken for a few, and the best for the rest. The
 * first calls find cold memory and teach nothing; the first periods are short,
 * so that what one got wrong does not last.
 *
 *     call      0 ... tries-1 | tries ... | ...        | then, to the period's end
 *     plan      the first     | second    | ... last   | one call more, decide, the best
 *     timed     all but the first of each
 *
 * Best is what costs the slowest rank least: every rank keeps its best time of
 * each plan where the others can read it, by its role in rooted calls (a root that has
 * only written ends early; its reader, who waited, knows better). The words
 * are independent and may be a call old: they change no result, only a choice.
 *
 * The choice is this rank's own affair, and peers learn it from headers. All
 * ranks try the same plan in the same call, since they count the same calls.
 */
#include "backend/shm/shm.h"

#define WARM_UP 4u /* calls before the first period */
#define FIRST_PERIOD 32u
#define LAST_PERIOD 256u /* each is twice as long as the one before, up to here */
#define TRIES 4u         /* calls of a plan in a row; the first one is not counted */
#define LARGE_TRIES 3u   /* of LARGE_BYTES and more: dear, and they vary less */
#define LARGE_BYTES 2097152u
#define OWN_BYTES 3145728u /* own blocks from here on may be copied past the cache */
#define LEAST_BYTES 4096u  /* sol_copy_stream passes by the cache from here on */

static sol_shm_tuned_t tuned(unsigned plan)
{
    return (sol_shm_tuned_t){(sol_shm_way)(plan % SOL_SHM_WAYS), plan >= SOL_SHM_WAYS};
}

/* Bit p: plan p can be taken for this call. */
static unsigned usable(const sol_shm_t *s, size_t bytes, sol_shm_tune_kind kind)
{
    unsigned ways = 1u << SOL_SHM_KEEP | 1u << SOL_SHM_PASS;
    if (kind != SOL_SHM_TUNE_COPIES && s->vm_readable && s->direct) {
        ways |= 1u << SOL_SHM_SHOW;
    }
    if (s->limits.way != 0) {
        unsigned forced = 1u << (s->limits.way - 1);
        ways = (ways & forced) != 0 ? forced : 1u << SOL_SHM_KEEP;
    }
    return kind == SOL_SHM_TUNE_ALL && bytes >= OWN_BYTES ? ways | ways << SOL_SHM_WAYS : ways;
}

static unsigned size_class(size_t bytes)
{
    unsigned log = 63u - (unsigned)__builtin_clzll(bytes) - SOL_SHM_TUNE_LEAST_LOG;
    return log < SOL_SHM_TUNE_SIZES ? log : SOL_SHM_TUNE_SIZES - 1;
}

/* The k-th usable plan. */
static unsigned nth(unsigned plans, unsigned k)
{
    for (; k > 0; k--) {
        plans &= plans - 1;
    }
    return (unsigned)__builtin_ctz(plans);
}

/* What `plan` costs the slowest rank; 0: nobody has timed it. */
static uint32_t cost(const sol_shm_t *s, unsigned func, unsigned size, unsigned plan)
{
    uint32_t worst = 0;
    for (int rank = 0; rank < s->nranks; rank++) {
        for (int role = 0; role < 2; role++) {
            uint32_t ns = atomic_load_explicit(
                &s->peers[rank].control->learned[func][size].best_ns[role][plan],
                memory_order_relaxed);
            worst = ns > worst ? ns : worst;
        }
    }
    return worst;
}

static unsigned decide(const sol_shm_t *s, unsigned func, unsigned size, unsigned plans)
{
    unsigned winner = (unsigned)__builtin_ctz(plans);
    uint32_t least = UINT32_MAX;
    for (unsigned left = plans; left != 0; left &= left - 1) {
        unsigned plan = (unsigned)__builtin_ctz(left);
        uint32_t ns = cost(s, func, size, plan);
        if (ns != 0 && ns < least) {
            least = ns;
            winner = plan;
        }
    }
    return winner;
}

static void forget(sol_shm_t *s, unsigned func, unsigned size, unsigned plan)
{
    for (int role = 0; role < 2; role++) {
        atomic_store_explicit(&s->control->learned[func][size].best_ns[role][plan], 0,
                              memory_order_relaxed);
    }
}

/* The place of the next call in its period; one of the warm-up's is at its end, beyond all tries.
 */
static unsigned next_call(sol_shm_lesson_t *lesson)
{
    if (lesson->period == 0) {
        lesson->period = FIRST_PERIOD / 2;
        lesson->at = FIRST_PERIOD / 2 - WARM_UP;
    }
    if (lesson->at == lesson->period) {
        lesson->period = lesson->period < LAST_PERIOD ? lesson->period * 2 : LAST_PERIOD;
        lesson->at = 0;
    }
    unsigned at = lesson->at++;
    return lesson->period < FIRST_PERIOD ? LAST_PERIOD : at;
}

/* The plan of this call out of several, and where its time goes. */
static unsigned learn(sol_shm_t *s, const sol_call_t *call, size_t bytes, unsigned plans)
{
    unsigned func = (unsigned)call->func, size = size_class(bytes);
    sol_shm_lesson_t *lesson = &s->lessons[func][size];
    unsigned tries = bytes >= LARGE_BYTES ? LARGE_TRIES : TRIES;
    unsigned explored = (unsigned)__builtin_popcount(plans) * tries;
    unsigned at = next_call(lesson);
    if (at == explored + 1) { /* one call later: all have stored their last time by then */
        lesson->winner = (uint8_t)decide(s, func, size, plans);
    }
    if (at >= explored) {
        return (plans >> lesson->winner & 1) != 0 ? lesson->winner : nth(plans, 0);
    }
    unsigned plan = nth(plans, at / tries);
    if (at % tries == 0) {
        forget(s, func, size, plan);
    } else {
        s->timing = &s->control->learned[func][size].best_ns[s->rank == call->root][plan];
        s->timing_since_ns = sol_now_ns();
    }
    return plan;
}

sol_shm_tuned_t sol_shm_tune_begin(sol_shm_t *s, const sol_call_t *call, size_t bytes,
                                   sol_shm_tune_kind kind)
{
    unsigned plans = usable(s, bytes, kind);
    bool alike = bytes < LEAST_BYTES || (s->all_threads && kind != SOL_SHM_TUNE_COPIES);
    s->timing = NULL;
    if (alike || (plans & (plans - 1)) == 0) {
        return tuned(nth(plans, 0));
    }
    return tuned(learn(s, call, bytes, plans));
}

void sol_shm_tune_end(sol_shm_t *s)
{
    if (s->timing == NULL) {
        return;
    }
    uint64_t ns = sol_now_ns() - s->timing_since_ns;
    uint32_t now = ns < UINT32_MAX ? (uint32_t)(ns | 1) : UINT32_MAX - 1; /* 0 is "not yet" */
    uint32_t best = atomic_load_explicit(s->timing, memory_order_relaxed);
    if (best == 0 || now < best) {
        atomic_store_explicit(s->timing, now, memory_order_relaxed);
    }
    s->timing = NULL;
}

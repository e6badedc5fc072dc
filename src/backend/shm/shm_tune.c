/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_tune.c: which way a rank makes its data readable, learned while running.
 *
 * Writing to a staging slot through the cache is best where the readers share
 * this core's last-level cache; past the cache where they do not, because the
 * lines that they still hold need not be taken from them one by one (measured:
 * 2.5 times slower the one way here, 2.5 times the other way there);
 * process_vm_readv saves the copy but costs system calls. Through the cache, few small chunks and
 * slots stay in one that the ranks share; many and large ones keep out of each other's way where
 * each has its own (two ranks: half as fast again one way here, 15% slower there). From some size
 * on results are better written past the cache too. Which holds cannot be read from the topology
 * that a virtual machine shows, and changes when the host moves its CPUs. So at the start of every
 * period of calls of one kind and size some plans are taken for a few calls each, and the best for
 * the rest. The first calls find cold memory and teach nothing; the first periods are short, so
 * that what one got wrong does not last.
 *
 *     call      0 ... tries-1 | tries ... | ...        | then, to the period's end
 *     plan      the first     | second    | ... last   | DELAY calls more, decide, the best
 *     timed     the last TRIES - 1 of each
 *
 * The first period tries all plans, the second those that may yet be best. Later
 * ones time the best again, which costs nothing; every FOURTH one tries all that
 * are near it, and every SIXTEENTH, or one after the best has become dearer
 * (the machine has changed), all of them.
 *
 * A plan's cost in a period is the median of its timed calls on the slowest
 * rank, by its role in rooted calls (a root that has only written ends early;
 * its reader, who waited, knows better); over periods, an average: one lucky
 * call decides nothing. Every rank keeps its medians where the others can read
 * them. These words are independent; they change no result, only a choice.
 *
 * The choice is this rank's own affair, and peers learn it from headers. All
 * ranks try the same plan in the same call, since they count the same calls and
 * read the same words, DELAY calls after the last was written: by then all have
 * written theirs (nearly always in rooted calls, whose root may run ahead; then
 * some calls are timed with mixed plans, and the next periods mend it).
 *
 * Sends are learned by the sender, where they are alone in their group or beside receives: the
 * header names the plan that is tried, and the receiver shows what it cost there. all_to_all_v,
 * whose sizes differ from call to call, takes what all_to_all and sends have learned.
 */
#include "backend/shm/shm.h"

#define WARM_UP 4u         /* calls before the first period */
#define FIRST_PERIOD 32u   /* all plans and DELAY fit */
#define LAST_PERIOD 64u    /* each is twice as long as the one before, up to here; ... */
#define LONG_BYTES 524288u /* ... of calls from here on, some milliseconds, FIRST_PERIOD */
#define FOURTH 4u /* periods from one that tries contenders to the next; others: the best only */
#define SIXTEENTH 16u   /* and from one that tries all plans */
#define TRIES 4u        /* calls of a plan in a row; the first one is not counted */
#define WIDE_WARM_UP 8u /* calls more of it, or fewer: none has used its slots lately */
#define LARGE_TRIES 3u  /* of LARGE_BYTES and more: dear, and perhaps few */
#define LARGE_BYTES 3145728u
#define DELAY 4u
#define LARGE_DELAY 2u
#define OWN_BYTES 3145728u /* results of calls from here on are written past the cache, mostly */
#define SUM_BYTES 8388608u /* of an all_reduce: only from here on */
#define SHOW_BYTES 16384u  /* what nothing is known of is read directly from here on */
#define LEAST_BYTES 4096u  /* sol_copy_stream passes by the cache from here on */

_Static_assert(TRIES - 1 <= SOL_SHM_SAMPLES, "every timed call of a plan is kept");
_Static_assert(SOL_SHM_WAYS *TRIES + WIDE_WARM_UP + DELAY < FIRST_PERIOD, "it can decide");

static sol_shm_tuned_t tuned(unsigned plan)
{
    return (sol_shm_tuned_t){(sol_shm_way)(plan % SOL_SHM_WAYS), plan >= SOL_SHM_WAYS};
}

/* Bit p: plan p can be taken for this call. */
static unsigned usable(const sol_shm_t *s, const sol_call_t *call, size_t bytes,
                       sol_shm_tune_kind kind)
{
    unsigned ways = 1u << SOL_SHM_KEEP | 1u << SOL_SHM_PASS;
    bool mutual = call->func == SOL_FUNC_ALL_REDUCE || call->func == SOL_FUNC_REDUCE_SCATTER ||
                  call->func == SOL_FUNC_ALL_GATHER || call->func == SOL_FUNC_ALL_TO_ALL;
    if (kind == SOL_SHM_TUNE_ALL && mutual && s->nranks == 2) {
        /* of large ones another plan would be too dear to try, and nothing fits a cache anyway */
        ways =
            bytes < OWN_BYTES ? ways | 1u << SOL_SHM_WIDE : 1u << SOL_SHM_WIDE | 1u << SOL_SHM_PASS;
    }
    if (kind != SOL_SHM_TUNE_COPIES && s->vm_readable && s->direct) {
        ways |= 1u << SOL_SHM_SHOW;
    }
    if (s->limits.way != 0) {
        unsigned forced = 1u << (s->limits.way - 1);
        ways = (ways & forced) != 0 ? forced : 1u << SOL_SHM_KEEP;
    }
    if (kind != SOL_SHM_TUNE_ALL || bytes < OWN_BYTES) {
        return ways;
    }
    /* few plans, since such calls are dear and often few; read directly through the cache is best
     * where each rank has a large cache for itself. An all_reduce fits the caches for longer: its
     * result is as large as one block of theirs; and it gains nothing from direct reads. */
    unsigned through = 1u << SOL_SHM_SHOW;
    if (call->func == SOL_FUNC_ALL_REDUCE && bytes >= SUM_BYTES) {
        through = 0;
    } else if (call->func == SOL_FUNC_ALL_REDUCE && (ways & ~through) != 0) {
        ways &= ~through;
        through = ways;
    }
    return ways << SOL_SHM_WAYS | (ways & through);
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

static uint32_t latest(const sol_shm_control_t *of, unsigned func, unsigned size, unsigned role,
                       unsigned plan)
{
    return atomic_load_explicit(&of->learned[func][size].latest_ns[role][plan],
                                memory_order_relaxed);
}

/* What `plan` costs the slowest rank, of a send the slower of two; 0: nobody has timed it. */
static uint32_t cost(const sol_shm_t *s, const sol_call_t *call, unsigned size, unsigned plan)
{
    unsigned func = (unsigned)call->func;
    uint32_t worst = 0;
    if (call->func == SOL_FUNC_SEND) {
        uint32_t ours = latest(s->control, func, size, 0, plan);
        uint32_t theirs = latest(s->peers[call->root].control, func, size, 1, plan);
        return ours > theirs ? ours : theirs;
    }
    for (int rank = 0; rank < s->nranks; rank++) {
        for (unsigned role = 0; role < 2; role++) {
            uint32_t ns = latest(s->peers[rank].control, func, size, role, plan);
            worst = ns > worst ? ns : worst;
        }
    }
    return worst;
}

/* This period's figure into the average. A fall is believed at once: luck does not make a median.
 */
static void average(uint32_t *known, uint32_t ns)
{
    bool fresh = *known == 0 || ns < *known / 3 * 2;
    *known = fresh ? ns : (uint32_t)(((uint64_t)*known + ns) / 2);
}

static void decide(sol_shm_t *s, sol_shm_lesson_t *lesson, const sol_call_t *call, unsigned size)
{
    uint32_t *known = lesson->cost_ns;
    uint32_t before = known[lesson->winner];
    unsigned best = lesson->winner;
    for (unsigned left = lesson->tried; left != 0; left &= left - 1) {
        unsigned plan = (unsigned)__builtin_ctz(left);
        uint32_t ns = cost(s, call, size, plan);
        if (ns != 0) {
            known[plan] = lesson->inherited ? 0 : known[plan];
            average(&known[plan], ns);
        }
    }
    for (unsigned left = lesson->tried; left != 0; left &= left - 1) {
        unsigned plan = (unsigned)__builtin_ctz(left);
        /* whoever is best stays so until another is by more than noise */
        uint32_t worth = known[best] - (best == lesson->winner ? known[best] / 32 : 0);
        if (known[plan] != 0 && (known[best] == 0 || known[plan] < worth)) {
            best = plan;
        }
    }
    lesson->winner = (uint8_t)best;
    bool guessed = lesson->inherited;
    lesson->inherited = false;
    if (before != 0 && !guessed && known[best] > before / 4 * 5) {
        /* dearer than the best was: the machine has changed, so look at all afresh in the next
         * period (not at once: ranks whose periods began apart would never try together again) */
        memset(known, 0, sizeof(lesson->cost_ns));
        lesson->periods = SIXTEENTH;
        lesson->settled = false;
    }
}

/* What a period tries, out of `plans`: those that are not known to be clearly worse. */
static unsigned worth_trying(sol_shm_lesson_t *lesson, unsigned plans)
{
    uint32_t best = lesson->cost_ns[lesson->winner], margin = best / 4;
    unsigned chosen = 0, period = lesson->periods++;
    if (period % SIXTEENTH == 0 || best == 0 || (plans >> lesson->winner & 1) == 0) {
        lesson->periods = 1;
        return plans;
    }
    if (!lesson->settled) {
        /* the first figures are of memory, page tables and caches that nobody has used yet */
        margin = lesson->inherited ? best / 2 : best * 2;
        lesson->settled = true;
    } else if (period % FOURTH != 0) {
        return 1u << lesson->winner;
    }
    for (unsigned left = plans; left != 0; left &= left - 1) {
        unsigned plan = (unsigned)__builtin_ctz(left);
        if (lesson->cost_ns[plan] <= best + margin) {
            chosen |= 1u << plan;
        }
    }
    return chosen;
}

static void forget(sol_shm_t *s, unsigned func, unsigned size, unsigned plan)
{
    for (int role = 0; role < 2; role++) {
        atomic_store_explicit(&s->control->learned[func][size].latest_ns[role][plan], 0,
                              memory_order_relaxed);
        s->lessons[func][size].samples[role].count = 0;
    }
}

/* What `plan` cost calls of half the size. Where they could not take it: what it cost them with
 * results written the other way. 0: not known. */
static uint32_t cost_of_half(const sol_shm_lesson_t *half, unsigned plan)
{
    unsigned other = plan < SOL_SHM_WAYS ? plan + SOL_SHM_WAYS : plan - SOL_SHM_WAYS;
    return half->cost_ns[plan] != 0 ? half->cost_ns[plan] : half->cost_ns[other];
}

/* Calls of LARGE_BYTES are too few and too dear to find out by trying what calls of half the size
 * have shown. */
static void inherit(const sol_shm_t *s, sol_shm_lesson_t *lesson, const sol_call_t *call,
                    size_t bytes, unsigned plans)
{
    const sol_shm_lesson_t *half = &s->lessons[call->func][size_class(bytes / 2)];
    /* where plans differ from those of half the size, there is nothing to be learned from them */
    size_t least = call->func == SOL_FUNC_ALL_REDUCE ? LARGE_BYTES / 2 : LARGE_BYTES;
    uint32_t best = UINT32_MAX;
    lesson->winner = (uint8_t)__builtin_ctz(plans);
    if (bytes / 2 < least || half == lesson) {
        return;
    }
    for (unsigned left = plans; left != 0; left &= left - 1) {
        unsigned plan = (unsigned)__builtin_ctz(left);
        uint32_t ns = cost_of_half(half, plan);
        lesson->cost_ns[plan] = ns < UINT32_MAX / 2 ? ns * 2 : 0;
        if (lesson->cost_ns[plan] != 0 && lesson->cost_ns[plan] < best) {
            best = lesson->cost_ns[plan];
            lesson->winner = (uint8_t)plan;
        }
    }
    lesson->inherited = best != UINT32_MAX;
    lesson->periods = lesson->inherited;
}

/* The place of the next call in its period; one of the warm-up's is at its end, beyond all tries.
 */
static unsigned next_call(const sol_shm_t *s, sol_shm_lesson_t *lesson, const sol_call_t *call,
                          size_t bytes, unsigned plans)
{
    if (lesson->period == 0) {
        inherit(s, lesson, call, bytes, plans);
        lesson->period = FIRST_PERIOD / 2;
        lesson->at = FIRST_PERIOD / 2 - WARM_UP;
    }
    if (lesson->at == lesson->period) {
        uint32_t most = bytes < LONG_BYTES ? LAST_PERIOD : FIRST_PERIOD;
        lesson->period = lesson->period < most ? lesson->period * 2 : most;
        lesson->at = 0;
        lesson->tried = (uint8_t)worth_trying(lesson, plans);
    }
    unsigned at = lesson->at++;
    return lesson->period < FIRST_PERIOD ? LAST_PERIOD : at; /* beyond all tries */
}

/* Calls in a row that try `plan`; the last ones are timed. */
static unsigned tries_of(unsigned plan, size_t bytes)
{
    if (bytes >= LARGE_BYTES) {
        return LARGE_TRIES;
    }
    unsigned round = (unsigned)(SOL_STAGING_DISTANCE / bytes); /* calls that use each slot once */
    round = round < WIDE_WARM_UP ? round : WIDE_WARM_UP;
    return plan % SOL_SHM_WAYS == SOL_SHM_WIDE ? round + TRIES : TRIES;
}

/* Call `at` of a period: which of the `tried` plans it tries, and how many calls of that come from
 * this one on; or 0, and *end is the first call that tries nothing. */
static unsigned find_try(unsigned tried, size_t bytes, unsigned at, unsigned *plan, unsigned *end)
{
    *end = 0;
    for (unsigned left = tried; left != 0; left &= left - 1) {
        *plan = (unsigned)__builtin_ctz(left);
        *end += tries_of(*plan, bytes);
        if (at < *end) {
            return *end - at;
        }
    }
    return 0;
}

/* The plan of this call out of several, and where its time goes. */
static unsigned learn(sol_shm_t *s, const sol_call_t *call, size_t bytes, unsigned plans)
{
    unsigned func = (unsigned)call->func, size = size_class(bytes);
    sol_shm_lesson_t *lesson = &s->lessons[func][size];
    unsigned at = next_call(s, lesson, call, bytes, plans), plan = 0, end;
    unsigned remaining = find_try(lesson->tried, bytes, at, &plan, &end);
    unsigned delay = bytes >= LARGE_BYTES ? LARGE_DELAY : DELAY;
    if (remaining == 0 && at == end + delay) {
        decide(s, lesson, call, size);
    }
    if (remaining == 0) {
        return (plans >> lesson->winner & 1) != 0 ? lesson->winner : nth(plans, 0);
    }
    if ((plans >> plan & 1) == 0) { /* at the edge of OWN_BYTES two calls of a class differ */
        return nth(plans, 0);
    }
    unsigned timed = (bytes >= LARGE_BYTES ? LARGE_TRIES : TRIES) - 1;
    if (remaining == timed + 1) {
        forget(s, func, size, plan);
    } else if (remaining <= timed) {
        unsigned role = s->rank == call->root;
        s->timed = &lesson->samples[role];
        s->timing = &s->control->learned[func][size].latest_ns[role][plan];
        s->timing_since_ns = sol_now_ns();
    }
    return plan;
}

sol_shm_tuned_t sol_shm_tune_begin(sol_shm_t *s, const sol_call_t *call, size_t bytes,
                                   sol_shm_tune_kind kind)
{
    unsigned plans = usable(s, call, bytes, kind);
    bool alike = bytes < LEAST_BYTES || (s->all_threads && kind != SOL_SHM_TUNE_COPIES);
    s->timing = NULL;
    if (alike || (plans & (plans - 1)) == 0) {
        return tuned(nth(plans, 0));
    }
    return tuned(learn(s, call, bytes, plans));
}

/* The middle one, of two the lesser. */
static uint32_t median(const sol_shm_samples_t *samples)
{
    uint32_t sorted[SOL_SHM_SAMPLES] = {0};
    for (unsigned i = 0; i < samples->count; i++) {
        unsigned k = i;
        for (; k > 0 && sorted[k - 1] > samples->ns[i]; k--) {
            sorted[k] = sorted[k - 1];
        }
        sorted[k] = samples->ns[i];
    }
    return sorted[(samples->count - 1) / 2];
}

/* 0 is "not yet". */
static uint32_t since(uint64_t begun_ns)
{
    uint64_t ns = sol_now_ns() - begun_ns;
    return ns < UINT32_MAX ? (uint32_t)(ns | 1) : UINT32_MAX - 1;
}

void sol_shm_tune_received(sol_shm_t *s, size_t bytes, unsigned plan, uint64_t begun_ns)
{
    if (plan < SOL_SHM_PLANS && bytes >= LEAST_BYTES) {
        sol_shm_learned_t *learned = &s->control->learned[SOL_FUNC_SEND][size_class(bytes)];
        atomic_store_explicit(&learned->latest_ns[1][plan], since(begun_ns), memory_order_relaxed);
    }
}

sol_shm_way sol_shm_tune_known(const sol_shm_t *s, size_t bytes)
{
    static const sol_func_t like[] = {SOL_FUNC_ALL_TO_ALL, SOL_FUNC_SEND};
    const sol_call_t send = {.func = SOL_FUNC_SEND};
    unsigned plans = usable(s, &send, bytes, SOL_SHM_TUNE_PAIRS);
    for (unsigned i = 0; i < 2 && bytes >= LEAST_BYTES; i++) {
        const sol_shm_lesson_t *lesson = &s->lessons[like[i]][size_class(bytes)];
        unsigned way = lesson->winner % SOL_SHM_WAYS;
        way = way == SOL_SHM_WIDE ? SOL_SHM_KEEP : way;
        if (lesson->cost_ns[lesson->winner] != 0 && (plans >> way & 1) != 0) {
            return (sol_shm_way)way;
        }
    }
    bool show = bytes >= SHOW_BYTES && (plans >> SOL_SHM_SHOW & 1) != 0;
    return show ? SOL_SHM_SHOW : (sol_shm_way)nth(plans, 0);
}

void sol_shm_tune_end(sol_shm_t *s)
{
    if (s->timing == NULL) {
        return;
    }
    sol_shm_samples_t *timed = s->timed;
    if (timed->count < SOL_SHM_SAMPLES) {
        timed->ns[timed->count++] = since(s->timing_since_ns);
    }
    atomic_store_explicit(s->timing, median(timed), memory_order_relaxed);
    s->timing = NULL;
}

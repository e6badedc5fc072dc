/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_report.c: what went wrong, in words, on every rank. A rank shows each of
 * its calls in its control page (a few stores to a line that nobody else reads
 * as long as all is well); who waits or finds a strange line looks there.
 *
 * A failing rank writes its story into its own page once, then sets the abort
 * word of every peer, if none was set before, and wakes it. A rank that fails
 * because of a story passes on where the story is, not a story about a story.
 */
#include "backend/shm/shm.h"
#include "core/use.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------------------- signatures */

static uint64_t mix(uint64_t h, uint64_t value)
{
    h = (h ^ value) * 0x9e3779b97f4a7c15ull;
    return h ^ h >> 29;
}

static uint32_t fold(uint64_t h)
{
    return (uint32_t)(h >> 32) | 1u; /* a zero tag must stay invalid */
}

static bool reduces(sol_func_t func)
{
    return func == SOL_FUNC_ALL_REDUCE || func == SOL_FUNC_REDUCE_SCATTER ||
           func == SOL_FUNC_REDUCE;
}

static bool has_root(sol_func_t func)
{
    return func == SOL_FUNC_BROADCAST || func == SOL_FUNC_REDUCE || func == SOL_FUNC_GATHER ||
           func == SOL_FUNC_SCATTER;
}

static bool is_pair(sol_func_t func)
{
    return func == SOL_FUNC_SEND || func == SOL_FUNC_RECV;
}

/* What the ranks of a call have to agree on, packed. A send and its receive are one thing. */
static uint64_t common_of(const sol_call_t *call)
{
    uint64_t func = (uint64_t)(call->func == SOL_FUNC_RECV ? SOL_FUNC_SEND : call->func);
    uint64_t common = func | (uint64_t)call->dtype << 8;
    if (reduces(call->func)) {
        common |= (uint64_t)call->reduction.op << 16 | (uint64_t)call->reduction.premul << 24;
    }
    if (has_root(call->func)) {
        common |= (uint64_t)(uint32_t)call->root << 32;
    }
    return call->func == SOL_FUNC_BARRIER ? func : common;
}

uint32_t sol_shm_signature(const sol_call_t *call)
{
    bool counted = call->func != SOL_FUNC_BARRIER && call->func != SOL_FUNC_ALL_TO_ALL_V;
    return fold(mix(mix(1, common_of(call)), counted ? call->count : 0));
}

uint32_t sol_shm_pair_signature(const sol_call_t *call, size_t count)
{
    return fold(mix(mix(2, common_of(call)), count));
}

/* ------------------------------------------------------------------------ showing a call */

/* A clock costs as much as the rest of a small call: one in 16 pays it. All ranks number their
 * collectives alike, so theirs are the same ones. */
static void note_arrival(sol_shm_t *s, uint64_t collective)
{
    sol_shm_arrival_t *at =
        &s->control->arrivals[collective / SOL_SHM_ARRIVAL_EACH % SOL_SHM_ARRIVALS];
    atomic_store_explicit(&at->collective, 0, memory_order_relaxed);
    /* release on both: who sees new ticks sees 0 or the new number; pairs with read_arrival */
    atomic_store_explicit(&at->ticks, sol_ticks(), memory_order_release);
    atomic_store_explicit(&at->collective, collective, memory_order_release);
}

void sol_shm_note_call(sol_shm_t *s, const sol_call_t *call, uint32_t sig)
{
    uint64_t index = ++s->calls;
    uint64_t collective = is_pair(call->func) ? 0 : ++s->collectives;
    if (SOL_UNLIKELY(collective % SOL_SHM_ARRIVAL_EACH == 0 && collective != 0)) {
        note_arrival(s, collective);
    }
    sol_shm_note_t *note = &s->control->notes[index % SOL_SHM_CALLS];
    s->call = call;
    s->sig = sig;
    atomic_store_explicit(&note->index, 0, memory_order_relaxed);
    /* release on each: who sees a new field has an index of 0 or the new one to see too */
    atomic_store_explicit(&note->collective, collective, memory_order_release);
    atomic_store_explicit(&note->sequence, call->sequence, memory_order_release);
    atomic_store_explicit(&note->count, call->count, memory_order_release);
    atomic_store_explicit(&note->what, call->what, memory_order_release);
    atomic_store_explicit(&note->sig, sig, memory_order_release);
    atomic_store_explicit(&note->index, index, memory_order_release);
    atomic_store_explicit(&s->control->started, index, memory_order_release);
}

/* A copy of a note of a peer's. */
typedef struct shown {
    uint64_t index, collective;
    uint32_t sig;
    sol_call_t call;
} shown_t;

static bool read_note(const sol_shm_peer_t *peer, unsigned slot, shown_t *shown)
{
    const sol_shm_note_t *note = &peer->control->notes[slot % SOL_SHM_CALLS];
    shown->index = atomic_load_explicit(&note->index, memory_order_acquire);
    shown->collective = atomic_load_explicit(&note->collective, memory_order_acquire);
    shown->call = (sol_call_t){
        .sequence = atomic_load_explicit(&note->sequence, memory_order_acquire),
        .count = atomic_load_explicit(&note->count, memory_order_acquire),
    };
    uint64_t what = atomic_load_explicit(&note->what, memory_order_acquire);
    shown->sig = atomic_load_explicit(&note->sig, memory_order_acquire);
    sol_call_unpack(what, &shown->call);
    return shown->index != 0 &&
           atomic_load_explicit(&note->index, memory_order_acquire) == shown->index;
}

/* The peer's call with this signature, the latest one; else with this collective number. */
static bool find_note(const sol_shm_peer_t *peer, uint32_t sig, uint64_t collective, shown_t *best)
{
    bool found = false;
    for (unsigned slot = 0; slot < SOL_SHM_CALLS; slot++) {
        shown_t shown;
        if (!read_note(peer, slot, &shown)) {
            continue;
        }
        bool match = collective != 0 ? shown.collective == collective : shown.sig == sig;
        if (match && (!found || shown.index > best->index)) {
            *best = shown;
            found = true;
        }
    }
    return found;
}

/* "which is at all_reduce #11 (...)", for a rank that does not come. */
static void describe_whereabouts(const sol_shm_peer_t *peer, char *text, size_t bytes)
{
    uint64_t started = atomic_load_explicit(&peer->control->started, memory_order_acquire);
    uint64_t finished = atomic_load_explicit(&peer->control->finished, memory_order_relaxed);
    char call[256];
    shown_t shown;
    if (started == 0) {
        snprintf(text, bytes, "which has not called anything yet");
    } else if (!read_note(peer, (unsigned)(started % SOL_SHM_CALLS), &shown)) {
        snprintf(text, bytes, "which goes on with other calls");
    } else {
        sol_call_describe(&shown.call, call, sizeof(call));
        snprintf(text, bytes, "which %s %s", finished >= started ? "has last completed" : "is at",
                 call);
    }
}

bool sol_shm_whereabouts(sol_comm_t comm, int rank, sol_whereabouts_t *at)
{
    const sol_shm_t *s = comm->state;
    const sol_shm_control_t *control = s->peers[rank].control;
    uint64_t started = atomic_load_explicit(&control->started, memory_order_acquire);
    uint64_t finished = atomic_load_explicit(&control->finished, memory_order_relaxed);
    shown_t shown;
    *at = (sol_whereabouts_t){.finished = true};
    if (started == 0) {
        return true;
    }
    if (!read_note(&s->peers[rank], (unsigned)(started % SOL_SHM_CALLS), &shown)) {
        return false;
    }
    at->call = shown.call;
    at->collective = shown.collective;
    at->finished = finished >= started;
    return true;
}

/* Entry `i` of `rank`, if it is about `collective`; 0 stands for any, and is filled in. */
static bool read_arrival(const sol_shm_t *s, int rank, unsigned i, uint64_t *collective,
                         uint64_t *ticks)
{
    const sol_shm_arrival_t *at = &s->peers[rank].control->arrivals[i];
    uint64_t number = atomic_load_explicit(&at->collective, memory_order_acquire);
    *ticks = atomic_load_explicit(&at->ticks, memory_order_acquire);
    bool wanted = number != 0 && (*collective == 0 || *collective == number);
    *collective = number;
    return wanted && atomic_load_explicit(&at->collective, memory_order_acquire) == number;
}

/* No array of all ranks': a signal handler may have a small stack. */
bool sol_shm_skew(sol_comm_t comm, int rank, sol_skew_t *skew)
{
    const sol_shm_t *s = comm->state;
    *skew = (sol_skew_t){0};
    for (unsigned i = 0; i < SOL_SHM_ARRIVALS; i++) {
        uint64_t collective = 0, ticks, own = 0, first = UINT64_MAX, last = 0;
        bool all = true;
        for (int r = 0; r < s->nranks && all; r++) {
            all = read_arrival(s, r, i, &collective, &ticks);
            first = ticks < first ? ticks : first;
            last = ticks > last ? ticks : last;
            own = r == rank ? ticks : own;
        }
        if (all) {
            skew->samples++;
            skew->last += own == last && last != first;
            skew->late_ticks += own - first;
            skew->most_ticks = own - first > skew->most_ticks ? own - first : skew->most_ticks;
        }
    }
    return skew->samples > 0 && s->nranks > 1;
}

/* ------------------------------------------------------------------------------- failing */

static void raise_all(sol_shm_t *s, uint32_t word)
{
    for (int r = 0; r < s->nranks; r++) {
        uint32_t none = 0;
        /* release: the story is whole before the word; pairs with the acquire in sol_shm_look */
        atomic_compare_exchange_strong_explicit(&s->peers[r].control->abort_word, &none, word,
                                                memory_order_acq_rel, memory_order_relaxed);
        sol_shm_wake(&s->peers[r]);
    }
}

void sol_shm_tell(sol_shm_t *s, sol_status_t status, const char *text)
{
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&s->control->story_state, &none, 1)) {
        return;
    }
    atomic_store_explicit(&s->control->story_status, (int)status, memory_order_relaxed);
    snprintf(s->control->story, sizeof(s->control->story), "%s", text);
    atomic_store_explicit(&s->control->story_state, 2, memory_order_release);
    raise_all(s, 1u + (uint32_t)s->rank);
}

sol_status_t sol_shm_fail(sol_shm_t *s, sol_status_t status, const char *format, ...)
{
    char text[SOL_ERROR_TEXT - 64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    sol_comm_fail(s->comm, status, "%s", text);
    sol_shm_tell(s, status, text);
    if (sol_use_held(s->comm)) { /* sol_transfer_wait is not: the buffers are another thread's */
        sol_shm_readers_leave(s);
    }
    return status;
}

static void describe_own(const sol_shm_t *s, char *text, size_t bytes)
{
    if (s->call == NULL) {
        snprintf(text, bytes, "%s", s->doing != NULL ? s->doing : "set-up");
        return;
    }
    sol_call_describe(s->call, text, bytes);
}

/* The rank waited for may itself wait: "; rank 2 (pid 77), which has ..., is behind" for the first
 * one that has not called this collective yet, other than `awaited`. */
static void describe_behind(const sol_shm_t *s, int awaited, char *text, size_t bytes)
{
    char where[320];
    text[0] = '\0';
    if (s->call == NULL || is_pair(s->call->func)) {
        return;
    }
    for (int r = 0; r < s->nranks; r++) {
        const sol_shm_peer_t *peer = &s->peers[r];
        uint64_t started = atomic_load_explicit(&peer->control->started, memory_order_acquire);
        shown_t shown = {0};
        bool known = started == 0 || read_note(peer, (unsigned)(started % SOL_SHM_CALLS), &shown);
        bool behind = known && !is_pair(shown.call.func) && shown.collective < s->collectives;
        if (behind && r != s->rank && r != awaited) {
            describe_whereabouts(peer, where, sizeof(where));
            snprintf(text, bytes, "; rank %d (pid %d), %s, is behind", r, peer->pid, where);
            return;
        }
    }
}

sol_status_t sol_shm_fail_timeout(sol_shm_t *s, const sol_shm_wait_t *w, uint64_t now_ns)
{
    char own[256], where[320], behind[384];
    int rank = __builtin_ctzll(w->ranks);
    describe_own(s, own, sizeof(own));
    describe_whereabouts(&s->peers[rank], where, sizeof(where));
    describe_behind(s, rank, behind, sizeof(behind));
    return sol_shm_fail(s, SOL_ERR_TIMEOUT, "%s: waited %.1f s for rank %d (pid %d), %s%s", own,
                        (double)(now_ns - w->started_ns) * 1e-9, rank, s->peers[rank].pid, where,
                        behind);
}

sol_status_t sol_shm_fail_gone(sol_shm_t *s, int rank, bool died)
{
    char own[256], where[320], will[SOL_WILL_TEXT];
    describe_own(s, own, sizeof(own));
    describe_whereabouts(&s->peers[rank], where, sizeof(where));
    bool said = sol_shm_given_up(s->comm, rank, 0, will) != SOL_OK;
    return sol_shm_fail(s, SOL_ERR_PEER, "%s: rank %d (pid %d), %s, %s%s%.400s", own, rank,
                        s->peers[rank].pid, where,
                        died ? "is gone: its process ended" : "has destroyed its communicator",
                        said ? ", after it gave up a group of it: " : "", said ? will : "");
}

/* ------------------------------------------------------------------------------ giving up */

void sol_shm_give_up(sol_comm_t comm, uint64_t group, sol_status_t status, const char *text)
{
    const sol_shm_t *s = comm->state;
    uint32_t number = atomic_load_explicit(&s->control->will_count, memory_order_relaxed);
    sol_shm_will_t *will = &s->control->wills[number % SOL_SHM_WILLS];
    uint64_t words[SOL_WILL_TEXT / 8] = {0};
    snprintf((char *)words, sizeof(words), "%s", text);
    atomic_store_explicit(&will->group, 0, memory_order_relaxed);
    /* release on each: who sees a new word has a group of 0 or the new one to see too */
    for (size_t i = 0; i < SOL_WILL_TEXT / 8; i++) {
        atomic_store_explicit(&will->text[i], words[i], memory_order_release);
    }
    atomic_store_explicit(&will->status, (int)status, memory_order_release);
    atomic_store_explicit(&will->started,
                          atomic_load_explicit(&s->control->started, memory_order_relaxed),
                          memory_order_release);
    atomic_store_explicit(&will->group, group, memory_order_release);
    atomic_store_explicit(&s->control->will_count, number + 1, memory_order_release);
}

/* The will in this slot, if it is about `group`, 0: about any; else SOL_OK. */
static sol_status_t read_will(const sol_shm_will_t *will, uint64_t group, uint64_t *started,
                              char text[SOL_WILL_TEXT])
{
    uint64_t words[SOL_WILL_TEXT / 8];
    uint64_t about = atomic_load_explicit(&will->group, memory_order_acquire);
    if (about == 0 || (group != 0 && about != group)) {
        return SOL_OK;
    }
    for (size_t i = 0; i < SOL_WILL_TEXT / 8; i++) {
        words[i] = atomic_load_explicit(&will->text[i], memory_order_acquire);
    }
    int status = atomic_load_explicit(&will->status, memory_order_acquire);
    *started = atomic_load_explicit(&will->started, memory_order_acquire);
    if (atomic_load_explicit(&will->group, memory_order_acquire) != about) {
        return SOL_OK;
    }
    memcpy(text, words, SOL_WILL_TEXT);
    text[SOL_WILL_TEXT - 1] = '\0';
    bool known = status <= SOL_ERR_ARGUMENT && status >= SOL_ERR_INTERNAL;
    return known ? (sol_status_t)status : SOL_ERR_PEER;
}

sol_status_t sol_shm_given_up(sol_comm_t comm, int rank, uint64_t group, char text[SOL_WILL_TEXT])
{
    const sol_shm_t *s = comm->state;
    const sol_shm_control_t *control = s->peers[rank].control;
    uint32_t count = atomic_load_explicit(&control->will_count, memory_order_acquire);
    uint64_t started;
    if (group == 0) {
        uint64_t now = atomic_load_explicit(&control->started, memory_order_acquire);
        unsigned last = count - 1u;
        sol_status_t status =
            count == 0 ? SOL_OK
                       : read_will(&control->wills[last % SOL_SHM_WILLS], 0, &started, text);
        return status != SOL_OK && started == now ? status : SOL_OK;
    }
    sol_status_t status = SOL_OK;
    for (unsigned i = 0; i < SOL_SHM_WILLS && status == SOL_OK; i++) {
        status = read_will(&control->wills[i], group, &started, text);
    }
    return status;
}

static const char *pair_story(const sol_shm_t *s, int rank, char *text, size_t bytes)
{
    const sol_shm_control_t *control = s->peers[rank].control;
    text[0] = '\0';
    if (s->call != NULL && s->call->func == SOL_FUNC_ALL_TO_ALL_V &&
        atomic_load_explicit(&control->pairs_index, memory_order_acquire) != 0) {
        uint64_t count = atomic_load_explicit(&control->pair_counts[s->rank], memory_order_relaxed);
        snprintf(text, bytes,
                 ": sendcounts[%d] of rank %d is %" PRIu64 ", recvcounts[%d] of rank %d is %zu",
                 s->rank, rank, count, rank, s->rank, s->call->recvcounts[rank]);
    }
    return text;
}

sol_status_t sol_shm_fail_line(sol_shm_t *s, int rank, uint32_t sig, uint64_t tag)
{
    char own[256], other[256], pair[160];
    shown_t shown;
    describe_own(s, own, sizeof(own));
    bool found = find_note(&s->peers[rank], (uint32_t)tag, 0, &shown);
    if (!found && s->call != NULL && s->call->func == SOL_FUNC_ALL_TO_ALL_V) {
        found = find_note(&s->peers[rank], 0, s->collectives, &shown);
    }
    if (found) {
        sol_call_describe(&shown.call, other, sizeof(other));
    } else {
        snprintf(other, sizeof(other), "something else (signature %08x, expected %08x)",
                 (unsigned)(uint32_t)tag, (unsigned)sig);
    }
    return sol_shm_fail(s, SOL_ERR_MISMATCH, "rank %d called %s where rank %d called %s%s", rank,
                        other, s->rank, own, pair_story(s, rank, pair, sizeof(pair)));
}

sol_status_t sol_shm_compare_calls(sol_shm_t *s, int rank)
{
    shown_t shown;
    if (s->call == NULL || is_pair(s->call->func) ||
        !find_note(&s->peers[rank], 0, s->collectives, &shown) || shown.sig == s->sig) {
        return SOL_OK;
    }
    char own[256], other[256];
    describe_own(s, own, sizeof(own));
    sol_call_describe(&shown.call, other, sizeof(other));
    return sol_shm_fail(s, SOL_ERR_MISMATCH, "rank %d called %s where rank %d called %s", rank,
                        other, s->rank, own);
}

sol_status_t sol_shm_note_story(sol_shm_t *s, uint32_t abort_word, const char *during)
{
    int rank = (int)abort_word - 1;
    const sol_shm_control_t *control = s->peers[rank].control;
    /* acquire: pairs with the release in sol_shm_tell (the word came after it) */
    bool told = atomic_load_explicit(&control->story_state, memory_order_acquire) == 2;
    int code =
        told ? atomic_load_explicit(&control->story_status, memory_order_relaxed) : SOL_ERR_PEER;
    sol_status_t status = SOL_ERR_PEER;
    if (code == SOL_ERR_ABORTED || code == SOL_ERR_TIMEOUT || code == SOL_ERR_MISMATCH) {
        status = (sol_status_t)code;
    }
    return sol_comm_fail(s->comm, status, "%s: rank %d reported: %.600s", during, rank,
                         told ? control->story : "a failure");
}

sol_status_t sol_shm_fail_story(sol_shm_t *s, uint32_t abort_word)
{
    char own[256];
    describe_own(s, own, sizeof(own));
    sol_status_t status = sol_shm_note_story(s, abort_word, own);
    raise_all(s, abort_word);
    sol_shm_readers_leave(s);
    return status;
}

sol_status_t sol_shm_fail_aborted(sol_shm_t *s)
{
    char own[256];
    describe_own(s, own, sizeof(own));
    return sol_shm_fail(s, SOL_ERR_ABORTED, "%s: %s", own, s->comm->abort_text);
}

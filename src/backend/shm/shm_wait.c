/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_wait.c: how a rank waits. Every loop of this backend that finds nothing
 * to do calls sol_shm_idle and goes round again; here is where it spins, then
 * yields, then sleeps, and where it learns that waiting is pointless: abort,
 * another rank's failure, a peer gone, a call that differs, the deadline.
 *
 *     0            ~2 us          SPIN_NS             YIELD_NS
 *     | poll       | poll, pause  | poll, sched_yield | poll, sleep on the bell (<= 1 ms)
 *
 * With more ranks than CPUs the awaited rank may need this very CPU: there it
 * yields almost at once and soon sleeps until it is woken.
 *
 * Sleep. The bell is a futex word in the sleeper's own segment.
 *
 *     sleeper: arm: b = bell; sleeping <- 1 (exchange)   poll again   futex_wait(bell, b)
 *     waker:   publish;  sleeping?  (fetch_or)           1 -> bell++, futex_wake
 *
 * Both touch `sleeping` by read-modify-writes, which have one order. If the
 * waker's comes first, the sleeper's exchange acquires what was published and
 * the poll that follows finds it; else the waker sees 1 and moves the bell, so
 * the wait returns. With CPUs to spare the waker only loads the flag, without
 * an order, and a wake-up may be lost: then the sleep lasts NAP_NS.
 *
 * Never fails a wait whose condition already holds: a rank that leaves or dies
 * after doing its part is only suspected at first, and polled once more.
 */
#include "backend/shm/shm.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPIN_NS 100000u          /* polling only, with CPUs to spare */
#define YIELD_NS 1000000u        /* then yielding, up to here */
#define CROWDED_YIELDS 32u       /* without: yields before the first sleep */
#define NAP_NS 1000000u          /* longest sleep with CPUs to spare */
#define CROWDED_NAP_NS 10000000u /* and without: wake-ups are not lost there */
#define CHECK_NS 20000000u       /* between looks at the peers' lives */
#define PAUSES_TIMED 64u
#define FAR_MOST 64u /* pauses that a look may take; longer: something else happened */

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
    return syscall(SYS_futex, (void *)word, op, value, timeout, NULL, 0);
}

void sol_shm_wake(sol_shm_peer_t *peer)
{
    atomic_fetch_add_explicit(&peer->control->bell, 1, memory_order_release);
    futex(&peer->control->bell, FUTEX_WAKE, 1, NULL);
}

static void arm(sol_shm_t *s, sol_shm_wait_t *w)
{
    w->bell = atomic_load_explicit(&s->control->bell, memory_order_acquire);
    /* pairs with the fetch_or in sol_shm_ring */
    atomic_exchange_explicit(&s->control->sleeping, 1, memory_order_acq_rel);
    w->armed = true;
}

static void disarm(sol_shm_t *s, sol_shm_wait_t *w)
{
    atomic_store_explicit(&s->control->sleeping, 0, memory_order_relaxed);
    w->armed = false;
}

static void tell_recorder(sol_shm_t *s, uint64_t ranks, uint64_t since_ns)
{
    if (s->call != NULL) {
        sol_flight_waiting(s->comm->flight, s->call->sequence, ranks, since_ns);
    }
}

/* For the straggler report: whoever was waited for last has this wait to answer for. */
static void account(sol_shm_t *s, sol_shm_wait_t *w)
{
    uint64_t waited = sol_now_ns() - w->started_ns;
    if (s->call != NULL) {
        sol_flight_waited(s->comm->flight, s->call->sequence, w->last_ranks, waited);
    }
    /* a failed wait stays on record: the dump says whom it was for */
    if (atomic_load_explicit(&s->comm->failed, memory_order_relaxed) == 0) {
        tell_recorder(s, 0, 0);
    }
    w->started_ns = 0;
}

void sol_shm_wait_end(sol_shm_t *s, sol_shm_wait_t *w)
{
    if (w->armed) {
        disarm(s, w);
    }
    if (w->started_ns != 0) {
        account(s, w);
    }
}

static void sleep_on_bell(sol_shm_t *s, sol_shm_wait_t *w, uint64_t now)
{
    uint64_t nap = s->oversubscribed ? CROWDED_NAP_NS : NAP_NS;
    uint64_t left = w->started_ns + s->comm->timeout_ns - now;
    if (left < nap) {
        nap = left;
    }
    struct timespec ts = {(time_t)(nap / 1000000000u), (long)(nap % 1000000000u)};
    futex(&s->control->bell, FUTEX_WAIT, w->bell, &ts);
    disarm(s, w);
}

static bool process_gone(const sol_shm_t *s, int rank)
{
    const sol_shm_peer_t *peer = &s->peers[rank];
    if (peer->pidfd >= 0) {
        struct pollfd p = {.fd = peer->pidfd, .events = POLLIN};
        return poll(&p, 1, 0) == 1 && (p.revents & POLLIN) != 0;
    }
    if (peer->pid <= 0) { /* in another PID namespace */
        return !peer->same_process && sol_boot_hung_up(s->comm->boot, rank);
    }
    return !peer->same_process && kill(peer->pid, 0) != 0 && errno == ESRCH;
}

bool sol_shm_gone(sol_comm_t comm, int rank)
{
    const sol_shm_t *s = comm->state;
    const sol_shm_peer_t *peer = &s->peers[rank];
    /* acquire: why it left was written before; pairs with the release in sol_shm_close */
    return atomic_load_explicit(&peer->control->closed, memory_order_acquire) != 0 ||
           process_gone(s, rank);
}

/* Which of the awaited ranks have left or died? */
static uint64_t find_suspects(sol_shm_t *s, const sol_shm_wait_t *w)
{
    uint64_t suspects = 0;
    for (uint64_t left = w->ranks; left != 0; left &= left - 1) {
        int r = __builtin_ctzll(left);
        /* acquire: what it did before it left is visible to the poll that follows */
        if (atomic_load_explicit(&s->peers[r].control->closed, memory_order_acquire) != 0) {
            suspects |= 1ull << r;
        } else if (process_gone(s, r)) {
            s->died |= 1ull << r;
            suspects |= 1ull << r;
        }
    }
    return suspects;
}

sol_status_t sol_shm_look(sol_shm_t *s)
{
    /* acquire: the reason (abort_text) was written before the flag, in sol_comm_abort_reason */
    if (SOL_UNLIKELY(atomic_load_explicit(&s->comm->abort_flag, memory_order_acquire) != 0)) {
        return sol_shm_fail_aborted(s);
    }
    /* acquire: the story lies behind it */
    uint32_t word = atomic_load_explicit(&s->control->abort_word, memory_order_acquire);
    if (SOL_UNLIKELY(word != 0)) {
        return sol_shm_fail_story(s, word);
    }
    return SOL_OK;
}

/* The dear checks, every CHECK_NS. */
static sol_status_t check_peers(sol_shm_t *s, sol_shm_wait_t *w)
{
    for (uint64_t left = w->ranks; left != 0; left &= left - 1) {
        sol_status_t status = sol_shm_compare_calls(s, __builtin_ctzll(left));
        if (status != SOL_OK) {
            return status;
        }
    }
    w->suspects = find_suspects(s, w);
    return SOL_OK;
}

static void give_way(sol_shm_t *s, sol_shm_wait_t *w, uint64_t now)
{
    uint64_t waited = now - w->started_ns;
    if (w->suspects != 0) {
        return; /* one more poll, then the verdict */
    }
    if (w->armed) {
        sleep_on_bell(s, w, now);
        return;
    }
    bool sleepy = s->oversubscribed ? w->rounds > CROWDED_YIELDS : waited > YIELD_NS;
    if (sleepy) {
        arm(s, w);
    } else if (s->oversubscribed || waited > SPIN_NS) {
        sched_yield();
    } else {
        w->idle = s->spin / 2; /* a few hundred polls without the clock */
    }
}

sol_status_t sol_shm_idle_slow(sol_shm_t *s, sol_shm_wait_t *w)
{
    uint64_t now = sol_now_ns();
    w->rounds++;
    if (w->started_ns == 0) {
        w->started_ns = now;
        w->next_check_ns = now + CHECK_NS / 20;
    }
    if (w->last_ranks != w->ranks) {
        w->last_ranks = w->ranks;
        tell_recorder(s, w->ranks, w->started_ns);
    }
    sol_status_t status = sol_shm_look(s);
    w->suspects &= w->ranks; /* the poll since then may have found that one's part done */
    if (status == SOL_OK && w->suspects != 0) {
        int rank = __builtin_ctzll(w->suspects);
        status = sol_shm_fail_gone(s, rank, (s->died >> rank & 1) != 0);
    }
    if (status == SOL_OK && now >= w->next_check_ns) {
        w->next_check_ns = now + CHECK_NS;
        status = check_peers(s, w);
    }
    if (status == SOL_OK && now - w->started_ns >= s->comm->timeout_ns) {
        status = sol_shm_fail_timeout(s, w, now);
    }
    if (status != SOL_OK) {
        sol_shm_wait_end(s, w);
        return status;
    }
    give_way(s, w, now);
    return SOL_OK;
}

/* ------------------------------------------------------------------ what is waited for */

/* A peer that does something else may never write the line waited for, only the next one. */
static sol_status_t look_at_next_line(sol_shm_t *s, int rank, uint32_t sig)
{
    uint64_t tag;
    if (sol_line_peek(&s->peers[rank].in, 0, sig, &tag) == SOL_LINE_OTHER) {
        return sol_shm_fail_line(s, rank, sig, tag);
    }
    return SOL_OK;
}

sol_status_t sol_shm_await_line_slow(sol_shm_t *s, int rank, uint32_t ahead, uint32_t sig)
{
    sol_shm_wait_t w = {.ranks = 1ull << rank};
    uint64_t tag;
    for (;;) {
        sol_line_state state = sol_line_peek(&s->peers[rank].in, ahead, sig, &tag);
        sol_status_t status = SOL_OK;
        if (state == SOL_LINE_EMPTY) {
            if (w.idle >= s->spin) {
                status = look_at_next_line(s, rank, sig);
            }
            if (status == SOL_OK) {
                status = sol_shm_idle(s, &w);
            }
        } else if (state == SOL_LINE_OTHER) {
            status = sol_shm_fail_line(s, rank, sig, tag);
        }
        if (state == SOL_LINE_VALID || status != SOL_OK) {
            sol_shm_wait_end(s, &w);
            return status;
        }
    }
}

uint32_t sol_shm_pause_ticks(void)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 4; i++) {
        uint64_t begun = sol_ticks_between();
        for (unsigned k = 0; k < PAUSES_TIMED; k++) {
            sol_cpu_relax();
        }
        uint64_t ticks = sol_ticks_between() - begun;
        least = ticks < least ? ticks : least;
    }
    return (uint32_t)(least / PAUSES_TIMED + 1);
}

/* One look, of `ticks`, has found a message, so it fetched a line that the peer had just written:
 * about the least of late, which nothing else has disturbed. Half of that is waited before a
 * message is looked for: 27 ns a pause, two of them where a line takes 130 to 160 ns, none at 40
 * to 50. */
static void note_distance(const sol_shm_t *s, sol_shm_peer_t *peer, uint64_t ticks)
{
    if (ticks < FAR_MOST * s->pause_ticks) {
        uint32_t known = peer->distance == 0 ? UINT32_MAX : peer->distance + peer->distance / 8 + 1;
        peer->distance = ticks < known ? (uint32_t)ticks : known;
        peer->patience = peer->distance / (2 * s->pause_ticks);
    }
}

sol_status_t sol_shm_await_message_timed(sol_shm_t *s, int rank, uint32_t sig, bool *in_cell)
{
    sol_shm_peer_t *peer = &s->peers[rank];
    uint64_t tag, begun = sol_ticks_between(), before = sol_ticks_between();
    const uint64_t clock = before - begun;
    for (uint32_t polls = 0; polls < 64; polls++) {
        sol_shm_found found = sol_shm_find_message(peer, sig, &tag);
        uint64_t ticks = sol_ticks_between() - before;
        if (found == SOL_SHM_IN_CELL || found == SOL_SHM_IN_PIPE) {
            note_distance(s, peer, ticks > clock ? ticks - clock : 0);
            *in_cell = found == SOL_SHM_IN_CELL;
            return SOL_OK;
        }
        sol_cpu_relax();
        before = sol_ticks_between();
    }
    return sol_shm_await_message_slow(s, rank, sig, in_cell);
}

sol_status_t sol_shm_await_message_slow(sol_shm_t *s, int rank, uint32_t sig, bool *in_cell)
{
    sol_shm_wait_t w = {.ranks = 1ull << rank};
    uint64_t tag;
    for (;;) {
        sol_shm_found found = sol_shm_find_message(&s->peers[rank], sig, &tag);
        sol_status_t status = SOL_OK;
        if (found == SOL_SHM_NOTHING) {
            status = sol_shm_idle(s, &w);
        } else if (found == SOL_SHM_STRANGE) {
            status = sol_shm_fail_line(s, rank, sig, tag);
        }
        if (status != SOL_OK || found != SOL_SHM_NOTHING) {
            sol_shm_wait_end(s, &w);
            *in_cell = found == SOL_SHM_IN_CELL;
            return status;
        }
    }
}

sol_status_t sol_shm_await_room_slow(sol_shm_t *s, int rank, uint32_t lines)
{
    sol_shm_wait_t w = {.ranks = 1ull << rank};
    sol_status_t status = SOL_OK;
    while (sol_line_room(&s->peers[rank].out, lines) < lines && status == SOL_OK) {
        status = sol_shm_idle(s, &w);
    }
    sol_shm_wait_end(s, &w);
    return status;
}

sol_status_t sol_shm_await_slot(sol_shm_t *s, int *slot)
{
    sol_shm_wait_t w = {0};
    sol_status_t status = SOL_OK;
    while (status == SOL_OK &&
           (*slot = sol_staging_find(&s->staging, s->chunk_done, &w.ranks)) < 0) {
        status = sol_shm_idle(s, &w);
    }
    sol_shm_wait_end(s, &w);
    return status;
}

sol_status_t sol_shm_await_directs(sol_shm_t *s, int rank)
{
    sol_shm_peer_t *peer = &s->peers[rank];
    sol_shm_wait_t w = {.ranks = 1ull << rank};
    sol_status_t status = SOL_OK;
    /* acquire: pairs with the release in sol_shm_directs_done; the peer's reads are over */
    while (atomic_load_explicit(&peer->its_ack->directs, memory_order_acquire) !=
               peer->directs_shown &&
           status == SOL_OK) {
        status = sol_shm_idle(s, &w);
    }
    sol_shm_wait_end(s, &w);
    return status;
}

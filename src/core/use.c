/* SPDX-License-Identifier: Apache-2.0 */
/*
 * use.c: the slow half of use.h: a thread that did not use the communicator
 * last wants to. Waits for the lock alone, which is held for microseconds.
 */
#include "core/use.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LEAVE_NS 10000000000u /* how long destroy waits for a thread that was told to leave */
#define LEAVE_STEP_NS 50000

_Thread_local struct sol_seat *sol_seat SOL_NEAR;

/* --------------------------------------------------------------------------- seats */

static _Atomic(struct sol_seat *) free_seats;
static pthread_key_t seat_key;
static pthread_once_t seat_once = PTHREAD_ONCE_INIT;
static bool seat_key_made;

/* A thread has ended. If it did so inside a call, its seat stays taken: so does the communicator.
 */
static void leave_seat(void *memory)
{
    struct sol_seat *seat = memory;
    if (atomic_load_explicit(&seat->inside, memory_order_relaxed) != NULL) {
        return;
    }
    seat->next = atomic_load(&free_seats);
    while (!atomic_compare_exchange_weak(&free_seats, &seat->next, seat)) {
    }
}

static void make_key(void)
{
    seat_key_made = pthread_key_create(&seat_key, leave_seat) == 0;
}

/* All at once, so that no other thread can be holding on to one of the list: no ABA. */
static struct sol_seat *take_free_seat(void)
{
    struct sol_seat *seat = atomic_exchange(&free_seats, NULL);
    struct sol_seat *rest = seat != NULL ? seat->next : NULL;
    while (rest != NULL) {
        struct sol_seat *next = rest->next;
        rest->next = atomic_load(&free_seats);
        while (!atomic_compare_exchange_weak(&free_seats, &rest->next, rest)) {
        }
        rest = next;
    }
    return seat;
}

/* This thread's seat; NULL where memory is refused. */
static struct sol_seat *get_seat(void)
{
    if (sol_seat != NULL) {
        return sol_seat;
    }
    pthread_once(&seat_once, make_key);
    struct sol_seat *seat = take_free_seat();
    if (seat == NULL) {
        seat = sol_aligned_calloc(SOL_CACHE_LINE, sizeof(*seat));
    }
    if (seat == NULL || !seat_key_made || pthread_setspecific(seat_key, seat) != 0) {
        if (seat != NULL) {
            leave_seat(seat);
        }
        return NULL;
    }
    sol_seat = seat;
    return seat;
}

bool sol_use_prepare(void)
{
    return get_seat() != NULL;
}

/* -------------------------------------------------------------------------- owners */

static long membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0);
}

/* Every other running thread of this process passes a full barrier before this returns. */
static void barrier_everywhere(void)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0 &&
        membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0) {
        (void)membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    }
}

bool sol_use_begin_slow(sol_comm_t comm)
{
    struct sol_seat *seat = get_seat();
    if (seat == NULL) {
        return false;
    }
    atomic_store_explicit(&seat->inside, NULL, memory_order_release);
    pthread_mutex_lock(&comm->use_lock);
    struct sol_seat *before = atomic_load_explicit(&comm->owner, memory_order_relaxed);
    bool in = before == NULL || before == seat;
    atomic_store_explicit(&comm->owner, seat, memory_order_seq_cst);
    if (!in) {
        barrier_everywhere();
        /* acquire: pairs with the release in sol_use_begin and sol_use_end */
        in = atomic_load_explicit(&before->inside, memory_order_acquire) != comm;
    }
    if (in) {
        atomic_store_explicit(&seat->inside, comm, memory_order_release);
    } else {
        atomic_store_explicit(&comm->owner, before, memory_order_release);
    }
    pthread_mutex_unlock(&comm->use_lock);
    return in;
}

sol_status_t sol_use_refused(sol_comm_t comm, const char *who)
{
    if (!sol_comm_alive(comm)) { /* since the check */
        return sol_comm_valid(comm, who);
    }
    if (sol_seat == NULL) {
        return sol_comm_error(comm, SOL_ERR_MEMORY, "%s: no memory for a thread's first call", who);
    }
    return sol_comm_error(comm, SOL_ERR_STATE,
                          "%s: another call on this communicator is still going on in this process "
                          "(at or after #%llu): a communicator is used by one thread at a time",
                          who, (unsigned long long)atomic_load(&comm->sequence));
}

sol_status_t sol_use_enter(sol_comm_t comm, const char *who, bool *step)
{
    *step = sol_use_held(comm);
    return *step || sol_use_begin(comm) ? SOL_OK : sol_use_refused(comm, who);
}

/* A thread without a seat that cannot have one: it takes the communicator's, until it leaves. */
static void seat_anyhow(sol_comm_t comm)
{
    _Static_assert(sizeof(struct sol_seat) <= sizeof(comm->last_seat), "a seat has room there");
    if (get_seat() == NULL) {
        sol_seat = (struct sol_seat *)(void *)comm->last_seat;
    }
}

static void leave_last_seat(sol_comm_t comm)
{
    if (sol_seat == (struct sol_seat *)(void *)comm->last_seat) {
        sol_seat = NULL;
    }
}

/* The communicator's own seat stays inside, so that every newcomer is refused: it may have looked
 * at the magic before it went. */
void sol_use_close(sol_comm_t comm)
{
    sol_use_park(comm);
    leave_last_seat(comm);
}

void sol_use_park(sol_comm_t comm)
{
    struct sol_seat *last = (struct sol_seat *)(void *)comm->last_seat;
    pthread_mutex_lock(&comm->use_lock);
    atomic_store(&last->inside, comm);
    atomic_store(&comm->owner, last);
    pthread_mutex_unlock(&comm->use_lock);
    if (sol_seat != last) {
        sol_use_end();
    }
}

bool sol_use_unpark(sol_comm_t comm)
{
    struct sol_seat *last = (struct sol_seat *)(void *)comm->last_seat, *seat = get_seat();
    if (seat == NULL) {
        return false;
    }
    pthread_mutex_lock(&comm->use_lock);
    atomic_store(&seat->inside, comm);
    atomic_store(&comm->owner, seat);
    atomic_store(&last->inside, NULL);
    pthread_mutex_unlock(&comm->use_lock);
    return true;
}

bool sol_use_take_over(sol_comm_t comm)
{
    seat_anyhow(comm);
    if (sol_use_begin(comm)) {
        return true;
    }
    (void)sol_comm_abort(comm); /* ends the waits of the thread inside */
    const struct timespec step = {.tv_nsec = LEAVE_STEP_NS};
    uint64_t end = sol_now_ns() + LEAVE_NS;
    while (sol_now_ns() < end && sol_comm_alive(comm)) { /* (another thread may destroy it) */
        if (sol_use_begin(comm)) {
            return true;
        }
        nanosleep(&step, NULL);
    }
    leave_last_seat(comm);
    return false;
}

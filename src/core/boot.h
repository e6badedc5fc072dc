/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot.h: how ranks find each other and exchange small things and file
 * descriptors while a communicator is made (and later for collective set-up
 * such as sol_mem_alloc). Never on the path of an operation.
 *
 * Shape: a star of Unix sockets in the abstract namespace. Rank 0 listens at a
 * name derived from the id by a one-way function; the others connect, retrying
 * until the deadline. Both sides check the peer's user (SO_PEERCRED) before
 * anything secret is sent; the hello then carries the secret, version, backend,
 * nranks and rank. A stranger, a wrong version or a malformed message is
 * refused without effect on the others. Every wait has a deadline and says
 * which ranks it waited for. Nothing is left in the file system.
 */
#ifndef SOL_CORE_BOOT_H
#define SOL_CORE_BOOT_H

#include "base/base.h"

#define SOL_BOOT_MAX_FDS 253 /* what one SCM_RIGHTS message carries (SCM_MAX_FD) */

typedef struct sol_boot sol_boot_t;

typedef struct sol_boot_config {
    const sol_unique_id_t *id;
    int nranks, rank;
    sol_backend_kind_t backend; /* all ranks must agree */
    int timeout_ms;
    const _Atomic int *abort_flag; /* polled while waiting; may be NULL */
    /* While joining: SOL_OK, or why this other rank of the new group will not come, in `why`, so
     * that nobody waits for it and all hear the first cause. Asked now and then; only looks. NULL:
     * not known. */
    sol_status_t (*absent)(void *context, int rank, char *why, size_t why_bytes);
    void *absent_context;
    sol_boot_t *reserved; /* NULL, or sol_boot_reserve's: taken, whatever the outcome */
} sol_boot_config_t;

/* Memory for one; NULL: refused. */
sol_boot_t *sol_boot_reserve(void);

/* All of these set the thread error (sol_thread_error) with the whole story when they fail. */
sol_status_t sol_boot_open(sol_boot_t **boot, const sol_boot_config_t *config);
/* `all` gets nranks * bytes in rank order. Also the barrier, with bytes 0. All ranks pass equal
 * `bytes`, at most 1 MiB. */
sol_status_t sol_boot_all_gather(sol_boot_t *boot, const void *mine, size_t bytes, void *all);
/* Every rank gives `count` (at most SOL_BOOT_MAX_FDS, equal on all) descriptors and gets
 * nranks * count, rank-major, its own duplicated; close-on-exec; the caller closes them. One that
 * is -1 arrives as -1: how a rank says that it has none. On failure none is left open. */
sol_status_t sol_boot_share_fds(sol_boot_t *boot, const int *fds, int count, int *all);
/* The communicator has been made: whatever abort_flag belongs to may go. */
void sol_boot_opened(sol_boot_t *boot);
/* pid of each rank as the kernel vouches for it (SO_PEERCRED through rank 0); 0: it cannot be seen
 * from here, in another PID namespace. */
int sol_boot_pid(const sol_boot_t *boot, int rank);
/* Is there a line to `rank` that its end has let go? True: it left or died. Only rank 0 has lines
 * to all. Any thread; only looks. */
bool sol_boot_hung_up(const sol_boot_t *boot, int rank);
/* Something went wrong here, outside boot: end the exchange that the other ranks are in, or come
 * to, with `status` and the text of this thread's last error, on all ranks. Returns `status`. */
sol_status_t sol_boot_break(sol_boot_t *boot, sol_status_t status);
/* Any thread: makes all waits in this boot return SOL_ERR_ABORTED, here at once and on the other
 * ranks, with `text`, when they are in an exchange. Later exchanges fail in the same way. */
void sol_boot_interrupt(sol_boot_t *boot, const char *text);
/* Local. NULL is fine. */
void sol_boot_close(sol_boot_t *boot);

#endif

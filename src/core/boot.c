/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot.c: exchanges among ranks that have joined: everybody to rank 0, rank 0
 * to everybody. Each exchange has a number and a size, so that ranks that call
 * different things are told apart, and a deadline. Once an exchange fails, the
 * star is broken for good and says why: its ranks may be out of step.
 *
 * Never on the path of an operation; never waits for one rank while another
 * has something to say.
 */
#include "core/boot_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* -------------------------------------------------------------------- failing */

void sol_boot_name_ranks(uint64_t mask, char *text, size_t bytes)
{
    size_t used = 0;
    bool first = true;
    text[0] = '\0';
    for (int r = 0; mask != 0 && used < bytes; r++, mask >>= 1) {
        if ((mask & 1) == 0) {
            continue;
        }
        const char *before = first ? (mask == 1 ? "rank " : "ranks ") : mask == 1 ? " and " : ", ";
        int more = snprintf(text + used, bytes - used, "%s%d", before, r);
        used += more > 0 ? (size_t)more : 0;
        first = false;
    }
}

static void tell_others(const sol_boot_t *boot)
{
    for (int r = 0; r < SOL_MAX_RANKS; r++) {
        if (boot->sockets[r] >= 0) {
            sol_boot_send_verdict(boot->sockets[r], boot->broken, boot->why);
        }
    }
}

sol_status_t sol_boot_fail(sol_boot_t *boot, sol_status_t status, const char *format, ...)
{
    char text[SOL_BOOT_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (boot->broken == SOL_OK) {
        boot->broken = status;
        memcpy(boot->why, text, sizeof(text));
        tell_others(boot);
    }
    return sol_thread_error(status, "%s", text);
}

sol_status_t sol_boot_break(sol_boot_t *boot, sol_status_t status)
{
    if (boot->broken != SOL_OK) {
        return status; /* the failure may well be boot's own, and the others know */
    }
    char text[SOL_BOOT_TEXT];
    snprintf(text, sizeof(text), "%s", sol_thread_error_text());
    boot->broken = status;
    snprintf(boot->why, sizeof(boot->why), "rank %d: %.800s", boot->rank, text);
    tell_others(boot);
    return status;
}

/* --------------------------------------------------------------- one exchange */

#define REPORT_NS 300000000u /* for rank 0's verdict to arrive */
#define ASK_NS 400000000u    /* and for its answer, where it did not */

typedef struct exchange {
    sol_boot_t *boot;
    uint64_t from; /* ranks of which something has still to come */
    sol_boot_wait_t wait;
    sol_boot_type_t type;
    const char *what; /* for texts */
} exchange_t;

static sol_status_t exchange_start(exchange_t *x, sol_boot_t *boot, sol_boot_type_t type)
{
    *x = (exchange_t){.boot = boot,
                      .wait = sol_boot_wait_from_now(boot),
                      .type = type,
                      .what = type == SOL_BOOT_FDS ? "descriptors" : "set-up data"};
    if (boot->rank != 0) { /* rank 0 knows who is missing: let it say so first */
        x->wait.deadline_ns += REPORT_NS;
    }
    if (boot->broken != SOL_OK) {
        return sol_thread_error(boot->broken, "%s", boot->why);
    }
    boot->step++;
    return SOL_OK;
}

/*
 * This rank's time is up before rank 0's: rank 0 alone can say who is missing, and does so when it
 * hears that. True: it has, or has failed otherwise, and boot has. (Where it does not answer, it is
 * rank 0 itself that was waited for.)
 */
static bool ask_host(exchange_t *x)
{
    sol_boot_t *boot = x->boot;
    char text[SOL_BOOT_TEXT];
    sol_boot_wait_t wait = x->wait;
    wait.deadline_ns = sol_now_ns() + ASK_NS;
    snprintf(text, sizeof(text), "timed out after %d ms: rank %d waited for %s from rank 0",
             boot->timeout_ms, boot->rank, x->what);
    sol_boot_send_verdict(boot->sockets[0], SOL_ERR_TIMEOUT, text);
    for (;;) {
        struct pollfd fds[2] = {{.fd = -1}, {.fd = boot->sockets[0], .events = POLLIN}};
        if (sol_boot_poll(&wait, fds, 1, 0) != SOL_OK) {
            return false;
        }
        int got = sol_boot_receive(boot->sockets[0], &boot->record, x->type == SOL_BOOT_FDS);
        if (got < 0) {
            return false;
        }
        if (got == 1 && boot->record.head.type == SOL_BOOT_VERDICT) {
            sol_status_t status = sol_boot_read_verdict(&boot->record, text);
            sol_boot_fail(boot, status, "%s", text);
            return true;
        }
        if (got == 1) { /* what was waited for comes too late */
            sol_boot_close_fds(boot->record.fds, boot->record.nfds);
        }
    }
}

/* A wait ended badly; `missing` are the ranks it was for. */
static sol_status_t wait_failed(exchange_t *x, sol_status_t status, uint64_t missing)
{
    sol_boot_t *boot = x->boot;
    char names[256];
    switch (status) {
    case SOL_ERR_TIMEOUT:
        if (boot->rank != 0 && ask_host(x)) {
            return boot->broken;
        }
        sol_boot_name_ranks(missing, names, sizeof(names));
        return sol_boot_fail(boot, status, "timed out after %d ms waiting for %s from %s%s",
                             boot->timeout_ms, x->what, names,
                             boot->rank != 0 ? ", which gathers it from all ranks" : "");
    case SOL_ERR_ABORTED:
        return sol_boot_fail(boot, status, "rank %d: the communicator was aborted during set-up",
                             boot->rank);
    case SOL_ERR_PEER:
        sol_boot_name_ranks(missing, names, sizeof(names));
        return sol_boot_fail(boot, status, "%s died or left during set-up", names);
    default:
        return sol_boot_fail(boot, status, "exchanging %s: %s", x->what, strerror(errno));
    }
}

/* Sends bytes (or the descriptors at `fds`) of one message in records that fit. */
static sol_status_t send_piece(exchange_t *x, int rank, const void *payload, uint32_t bytes,
                               uint32_t total, const int *fds, int nfds)
{
    sol_boot_t *boot = x->boot;
    sol_boot_head_t head = {.magic = SOL_BOOT_MAGIC,
                            .type = x->type,
                            .step = boot->step,
                            .bytes = bytes,
                            .total = total};
    sol_status_t status = sol_boot_send(boot->sockets[rank], &x->wait, &head, payload, fds, nfds);
    if (status == SOL_ERR_PEER &&
        sol_boot_receive(boot->sockets[rank], &boot->record, false) == 1 &&
        boot->record.head.type == SOL_BOOT_VERDICT) {
        char text[SOL_BOOT_TEXT];
        status = sol_boot_read_verdict(&boot->record, text);
        return sol_boot_fail(boot, status, "%s", text);
    }
    return status == SOL_OK ? SOL_OK : wait_failed(x, status, (uint64_t)1 << rank);
}

/*
 * The next record of this exchange from `rank`, if it is there: 1 and boot->record holds it, 0 not
 * yet, -1 boot has failed.
 */
static int take_piece(exchange_t *x, int rank, uint32_t total)
{
    sol_boot_t *boot = x->boot;
    sol_boot_record_t *record = &boot->record;
    char text[SOL_BOOT_TEXT];
    int got = sol_boot_receive(boot->sockets[rank], record, x->type == SOL_BOOT_FDS);
    if (got == 0) {
        return 0;
    }
    if (got == -1) {
        wait_failed(x, SOL_ERR_PEER, (uint64_t)1 << rank);
        return -1;
    }
    if (got == -2) {
        sol_boot_fail(boot, SOL_ERR_SYSTEM, "rank %d could not receive %s from rank %d%s",
                      boot->rank, x->what, rank,
                      x->type == SOL_BOOT_FDS ? " (too many open files?)" : "");
        return -1;
    }
    if (record->head.type == (uint32_t)x->type && record->head.step == boot->step &&
        record->head.total == total) {
        return 1;
    }
    sol_boot_close_fds(record->fds, record->nfds);
    if (record->head.type == SOL_BOOT_VERDICT) {
        sol_status_t status = sol_boot_read_verdict(record, text);
        uint64_t missing = x->from & ~((uint64_t)1 << rank);
        if (status == SOL_ERR_TIMEOUT && boot->rank == 0 && missing != 0) {
            wait_failed(x, status, missing); /* who that is, is known best here */
        } else {
            sol_boot_fail(boot, status, "%s", text);
        }
    } else {
        sol_boot_fail(boot, SOL_ERR_MISMATCH,
                      "ranks %d and %d are at different points of their set-up (exchange %u of %u "
                      "bytes, %u of %u)",
                      boot->rank, rank, boot->step, total, record->head.step, record->head.total);
    }
    return -1;
}

/* Keeps a record that take_piece accepted. `done` counts what this rank has given so far. True if
 * it fits. */
typedef bool (*keep_fn)(exchange_t *x, void *context, int rank, uint32_t *done);

/*
 * Takes whole messages of `total` units from every rank in `from`, whichever comes first. All
 * other ranks are watched too: one that gives up has to be heard.
 */
static sol_status_t collect(exchange_t *x, uint64_t from, uint32_t total, keep_fn keep,
                            void *context)
{
    sol_boot_t *boot = x->boot;
    uint32_t done[SOL_MAX_RANKS] = {0};
    x->from = from;
    while (x->from != 0) {
        struct pollfd fds[1 + SOL_MAX_RANKS];
        for (int r = 0; r < boot->nranks; r++) {
            fds[1 + r] = (struct pollfd){.fd = boot->sockets[r], .events = POLLIN};
        }
        sol_status_t status = sol_boot_poll(&x->wait, fds, boot->nranks, 0);
        if (status != SOL_OK) {
            return wait_failed(x, status, x->from);
        }
        for (int r = 0; r < boot->nranks; r++) {
            int got = fds[1 + r].revents != 0 ? take_piece(x, r, total) : 0;
            if (got < 0) {
                return boot->broken;
            }
            if (got > 0 && ((x->from >> r & 1) == 0 || !keep(x, context, r, &done[r]))) {
                sol_boot_close_fds(boot->record.fds, boot->record.nfds);
                return sol_boot_fail(boot, SOL_ERR_INTERNAL, "rank %d sent %s that do not fit", r,
                                     x->what);
            }
            if (got > 0 && done[r] >= total) {
                x->from &= ~((uint64_t)1 << r);
            }
        }
    }
    return SOL_OK;
}

/* The ranks that this one has a line to. */
static uint64_t connected(const sol_boot_t *boot)
{
    uint64_t mask = 0;
    for (int r = 0; r < SOL_MAX_RANKS; r++) {
        mask |= boot->sockets[r] >= 0 ? (uint64_t)1 << r : 0;
    }
    return mask;
}

/* ------------------------------------------------------------------ all_gather */

typedef struct bytes_place {
    unsigned char *all;
    uint32_t stride; /* rank r's message starts at r * stride */
    uint32_t total;
} bytes_place_t;

static bool keep_bytes(exchange_t *x, void *context, int rank, uint32_t *done)
{
    bytes_place_t *place = context;
    const sol_boot_record_t *record = &x->boot->record;
    if (record->head.bytes > place->total - *done || record->nfds != 0) {
        return false;
    }
    if (record->head.bytes > 0) {
        memcpy(place->all + (size_t)rank * place->stride + *done, record->payload,
               record->head.bytes);
    }
    *done += record->head.bytes;
    return true;
}

static sol_status_t send_bytes(exchange_t *x, int rank, const void *data, uint32_t total)
{
    const unsigned char *next = data;
    uint32_t left = total;
    do {
        uint32_t bytes = left < SOL_BOOT_CHUNK ? left : SOL_BOOT_CHUNK;
        sol_status_t status = send_piece(x, rank, next, bytes, total, NULL, 0);
        if (status != SOL_OK) {
            return status;
        }
        left -= bytes;
        if (bytes > 0) { /* otherwise next may be NULL */
            next += bytes;
        }
    } while (left > 0);
    return SOL_OK;
}

static sol_status_t gather_as_host(exchange_t *x, unsigned char *all, uint32_t bytes)
{
    sol_boot_t *boot = x->boot;
    bytes_place_t place = {all, bytes, bytes};
    sol_status_t status = collect(x, connected(boot), bytes, keep_bytes, &place);
    for (int r = 1; r < boot->nranks && status == SOL_OK; r++) {
        status = send_bytes(x, r, all, bytes * (uint32_t)boot->nranks);
    }
    return status;
}

static sol_status_t gather_as_other(exchange_t *x, const void *mine, unsigned char *all,
                                    uint32_t bytes)
{
    /* all parts come from rank 0, so from socket 0 */
    uint32_t total = bytes * (uint32_t)x->boot->nranks;
    bytes_place_t place = {all, 0, total};
    sol_status_t status = send_bytes(x, 0, mine, bytes);
    return status == SOL_OK ? collect(x, 1, total, keep_bytes, &place) : status;
}

sol_status_t sol_boot_all_gather(sol_boot_t *boot, const void *mine, size_t bytes, void *all)
{
    exchange_t x;
    if (bytes > (size_t)1 << 20) {
        return sol_thread_error(SOL_ERR_INTERNAL, "boot all_gather of %zu bytes", bytes);
    }
    sol_status_t status = exchange_start(&x, boot, SOL_BOOT_GATHER);
    if (status != SOL_OK) {
        return status;
    }
    if (boot->rank != 0) {
        return gather_as_other(&x, mine, all, (uint32_t)bytes);
    }
    if (bytes > 0) {
        memmove(all, mine, bytes);
    }
    return gather_as_host(&x, all, (uint32_t)bytes);
}

/* ----------------------------------------------------------------- descriptors */

typedef struct fds_place {
    int *all;
    uint32_t stride; /* rank r's start at r * stride */
    uint32_t total;
} fds_place_t;

/* The payload has a byte for each place: 1 where a descriptor came for it. */
static bool keep_fds(exchange_t *x, void *context, int rank, uint32_t *done)
{
    fds_place_t *place = context;
    sol_boot_record_t *record = &x->boot->record;
    uint32_t places = record->head.bytes;
    int present = 0;
    if (places == 0 || places > place->total - *done) {
        return false;
    }
    for (uint32_t i = 0; i < places; i++) {
        present += record->payload[i] != 0;
    }
    if (present != record->nfds) {
        return false;
    }
    int next = 0;
    for (uint32_t i = 0; i < places; i++) {
        place->all[(size_t)rank * place->stride + *done + i] =
            record->payload[i] != 0 ? record->fds[next++] : -1;
    }
    record->nfds = 0; /* they have an owner now */
    *done += places;
    return true;
}

static sol_status_t send_fds(exchange_t *x, int rank, const int *fds, uint32_t total)
{
    for (uint32_t start = 0; start < total; start += SOL_BOOT_MAX_FDS) {
        uint32_t left = total - start;
        uint32_t places = left < SOL_BOOT_MAX_FDS ? left : SOL_BOOT_MAX_FDS;
        unsigned char flags[SOL_BOOT_MAX_FDS];
        int present[SOL_BOOT_MAX_FDS];
        int n = 0;
        for (uint32_t i = 0; i < places; i++) {
            flags[i] = fds[start + i] >= 0;
            if (flags[i]) {
                present[n++] = fds[start + i];
            }
        }
        sol_status_t status = send_piece(x, rank, flags, places, total, present, n);
        if (status != SOL_OK) {
            return status;
        }
    }
    return SOL_OK;
}

static sol_status_t duplicate(exchange_t *x, const int *fds, int count, int *copies)
{
    for (int i = 0; i < count; i++) {
        copies[i] = fds[i] >= 0 ? fcntl(fds[i], F_DUPFD_CLOEXEC, 3) : -1;
        if (fds[i] >= 0 && copies[i] < 0) {
            return sol_boot_fail(x->boot, SOL_ERR_SYSTEM, "rank %d: duplicating a descriptor: %s",
                                 x->boot->rank, strerror(errno));
        }
    }
    return SOL_OK;
}

static sol_status_t share_as_host(exchange_t *x, const int *fds, int count, int *all)
{
    sol_boot_t *boot = x->boot;
    fds_place_t place = {all, (uint32_t)count, (uint32_t)count};
    sol_status_t status = duplicate(x, fds, count, all);
    if (status == SOL_OK) {
        status = collect(x, connected(boot), (uint32_t)count, keep_fds, &place);
    }
    for (int r = 1; r < boot->nranks && status == SOL_OK; r++) {
        status = send_fds(x, r, all, (uint32_t)(count * boot->nranks));
    }
    return status;
}

static sol_status_t share_as_other(exchange_t *x, const int *fds, int count, int *all)
{
    uint32_t total = (uint32_t)(count * x->boot->nranks);
    fds_place_t place = {all, 0, total};
    sol_status_t status = send_fds(x, 0, fds, (uint32_t)count);
    return status == SOL_OK ? collect(x, 1, total, keep_fds, &place) : status;
}

sol_status_t sol_boot_share_fds(sol_boot_t *boot, const int *fds, int count, int *all)
{
    exchange_t x;
    if (count < 0 || count > SOL_BOOT_MAX_FDS) {
        return sol_thread_error(SOL_ERR_INTERNAL, "boot cannot share %d descriptors", count);
    }
    if (count == 0) {
        return sol_boot_all_gather(boot, NULL, 0, NULL);
    }
    sol_status_t status = exchange_start(&x, boot, SOL_BOOT_FDS);
    if (status != SOL_OK) {
        return status;
    }
    for (int i = 0; i < count * boot->nranks; i++) {
        all[i] = -1;
    }
    status =
        boot->rank == 0 ? share_as_host(&x, fds, count, all) : share_as_other(&x, fds, count, all);
    if (status != SOL_OK) {
        sol_boot_close_fds(all, count * boot->nranks);
    }
    return status;
}

/* ------------------------------------------------------------- opening, closing */

sol_boot_t *sol_boot_reserve(void)
{
    sol_boot_t *boot = sol_calloc(1, sizeof(*boot));
    if (boot != NULL) {
        boot->interrupt_fd = -1;
        for (int r = 0; r < SOL_MAX_RANKS; r++) {
            boot->sockets[r] = -1;
        }
    }
    return boot;
}

sol_status_t sol_boot_open(sol_boot_t **result, const sol_boot_config_t *config)
{
    sol_boot_t *boot = config->reserved != NULL ? config->reserved : sol_boot_reserve();
    if (boot == NULL) {
        return sol_thread_error(SOL_ERR_MEMORY, "no memory for the set-up of a communicator");
    }
    boot->rank = config->rank;
    boot->nranks = config->nranks;
    boot->timeout_ms = config->timeout_ms;
    boot->abort_flag = config->abort_flag;
    boot->pids[boot->rank] = (int)getpid();
    sol_status_t status = SOL_OK;
    if (boot->nranks > 1) { /* a rank alone has nobody to wait for */
        boot->interrupt_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        status = boot->interrupt_fd >= 0
                     ? sol_boot_join(boot, config)
                     : sol_thread_error(SOL_ERR_SYSTEM, "eventfd: %s", strerror(errno));
    }
    if (status != SOL_OK) {
        sol_boot_close(boot);
        return status;
    }
    *result = boot;
    return SOL_OK;
}

void sol_boot_opened(sol_boot_t *boot)
{
    boot->abort_flag = NULL;
}

int sol_boot_pid(const sol_boot_t *boot, int rank)
{
    return boot->pids[rank];
}

bool sol_boot_hung_up(const sol_boot_t *boot, int rank)
{
    struct pollfd p = {.fd = boot->sockets[rank], .events = 0};
    return p.fd >= 0 && poll(&p, 1, 0) == 1 && (p.revents & POLLHUP) != 0;
}

void sol_boot_interrupt(sol_boot_t *boot, const char *text)
{
    if (atomic_exchange(&boot->interrupted, 1) != 0 || boot->interrupt_fd < 0) {
        return;
    }
    uint64_t one = 1;
    ssize_t ignored = write(boot->interrupt_fd, &one, sizeof(one)); /* stays readable for ever */
    (void)ignored;
    for (int r = 0; r < SOL_MAX_RANKS; r++) {
        if (boot->sockets[r] >= 0) {
            sol_boot_send_verdict(boot->sockets[r], SOL_ERR_ABORTED, text);
        }
    }
}

void sol_boot_close(sol_boot_t *boot)
{
    if (boot == NULL) {
        return;
    }
    for (int r = 0; r < SOL_MAX_RANKS; r++) {
        if (boot->sockets[r] >= 0) {
            /* a forked child may hold the socket too: close alone would not end it */
            shutdown(boot->sockets[r], SHUT_RDWR);
            close(boot->sockets[r]);
        }
    }
    if (boot->interrupt_fd >= 0) {
        close(boot->interrupt_fd);
    }
    sol_free(boot);
}

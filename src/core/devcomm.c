/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devcomm.c: device communicators, above the backend: memory of sol_mem_alloc
 * with a layout of its own (proto/dev_layout.h), filled here, handed to the
 * caller's kernels. Creation is collective and succeeds on all ranks or none.
 *
 * Must never: touch the protocol state of the built-in collectives.
 */
#include "core/setup.h"
#include "core/use.h"
#include "proto/dev_layout.h"

#include <inttypes.h>

typedef struct dev_job {
    sol_job_t job;
    sol_dev_config_t config;
    sol_dev_comm_t dev;
    sol_dev_comm_t *result;
    struct sol_dev_record *record;
} dev_job_t;

/* What sol_comm_wake has to make anew. */
struct sol_dev_record {
    sol_dev_config_t config;
    void *allocation;
    struct sol_dev_record *next;
};

/* Ranks must ask for the same: a sum of the config's bytes stands for it. */
static uint64_t fingerprint(const sol_dev_config_t *config)
{
    const unsigned char *bytes = (const unsigned char *)config;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof(*config); i++) {
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    }
    return hash;
}

static sol_status_t agree_on_config(sol_comm_t comm, const sol_dev_config_t *config)
{
    sol_agree_t own = {.what = SOL_AGREE_DEV_COMM, .bytes = fingerprint(config)};
    sol_agree_t *all = sol_calloc((size_t)comm->nranks, sizeof(*all));
    if (all == NULL) {
        sol_comm_fail_all(comm, SOL_ERR_MEMORY,
                          "sol_dev_comm_create: no memory to compare configs");
        return sol_boot_break(comm->boot, SOL_ERR_MEMORY);
    }
    sol_status_t status = sol_agree_exchange(comm, &own, all);
    for (int r = 1; r < comm->nranks && status == SOL_OK; r++) {
        if (all[r].bytes != all[0].bytes) {
            status = sol_comm_error(comm, SOL_ERR_MISMATCH,
                                    "sol_dev_comm_create: ranks %d and 0 ask for different "
                                    "channels, counters, barriers or memory",
                                    r);
        }
    }
    sol_free(all);
    return status;
}

static sol_status_t fill(sol_comm_t comm, const sol_dev_config_t *config,
                         const struct sol_dev_layout *layout, void *memory)
{
    unsigned char *image = sol_calloc(1, layout->memory);
    if (image == NULL) {
        return sol_comm_error(comm, SOL_ERR_MEMORY,
                              "sol_dev_comm_create: no memory for %" PRIu64
                              " bytes of first contents",
                              layout->memory);
    }
    sol_dev_fill(layout, config, comm->nranks, image);
    sol_status_t status = comm->backend->dev_write(comm, memory, image, layout->memory);
    sol_free(image);
    return status;
}

static void keep_record(sol_comm_t comm, dev_job_t *make)
{
    struct sol_dev_record *record = make->record;
    record->config = make->config;
    record->allocation = make->dev.allocation;
    record->next = comm->dev_records;
    comm->dev_records = record;
    make->record = NULL;
}

static void drop_record(sol_comm_t comm, const void *allocation)
{
    struct sol_dev_record **link = &comm->dev_records;
    while (*link != NULL && (*link)->allocation != allocation) {
        link = &(*link)->next;
    }
    struct sol_dev_record *record = *link;
    if (record != NULL) {
        *link = record->next;
        sol_free(record);
    }
}

void sol_dev_records_free(sol_comm_t comm)
{
    while (comm->dev_records != NULL) {
        drop_record(comm, comm->dev_records->allocation);
    }
}

sol_status_t sol_dev_records_refill(sol_comm_t comm)
{
    sol_status_t status = SOL_OK;
    for (const struct sol_dev_record *at = comm->dev_records; at != NULL && status == SOL_OK;
         at = at->next) {
        struct sol_dev_layout layout = sol_dev_layout_of(&at->config, comm->nranks);
        status = fill(comm, &at->config, &layout, at->allocation);
    }
    return status;
}

static sol_status_t dev_run(sol_job_t *job)
{
    dev_job_t *make = (dev_job_t *)job;
    sol_comm_t comm = job->comm;
    struct sol_dev_layout layout = sol_dev_layout_of(&make->config, comm->nranks);
    struct sol_bound bound;
    sol_window_t window = {0};
    void *memory = NULL;
    sol_status_t status = sol_comm_usable(comm, "sol_dev_comm_create");
    if (status == SOL_OK) {
        status = agree_on_config(comm, &make->config);
    }
    if (status == SOL_OK && comm->backend->dev_check != NULL) {
        status = comm->backend->dev_check(comm, &make->config);
    }
    if (status != SOL_OK) {
        return status;
    }
    sol_status_t mine = comm->backend->mem_alloc(comm, layout.total, &memory);
    if (mine == SOL_OK && (make->record = sol_calloc(1, sizeof(*make->record))) == NULL) {
        mine = sol_comm_error(comm, SOL_ERR_MEMORY, "sol_dev_comm_create: no memory");
    }
    if (mine == SOL_OK) {
        mine = fill(comm, &make->config, &layout, memory);
    }
    if (mine == SOL_OK) {
        mine = comm->backend->dev_window(comm, memory, &window, &bound);
    }
    /* no rank's kernels may begin before every rank's memory is filled: this is the meeting, too */
    status = sol_agree_outcome(comm, mine);
    if (status == SOL_OK) {
        sol_dev_describe(&layout, &make->config, window.base, comm->rank, comm->nranks, &bound,
                         &make->dev);
        if (make->config.multicast && window.multicast != NULL) {
            make->dev.memory.multicast = window.multicast + layout.memory;
        }
        keep_record(comm, make);
    } else if (memory != NULL) {
        comm->backend->mem_free(comm, memory);
    }
    sol_free(make->record); /* (of one that failed) */
    return status;
}

static void dev_finish(sol_job_t *job, bool commit)
{
    dev_job_t *make = (dev_job_t *)job;
    if (commit) {
        *make->result = make->dev;
    } else if (make->dev.allocation != NULL) {
        drop_record(job->comm, make->dev.allocation);
        job->comm->backend->mem_free(job->comm, make->dev.allocation);
    }
}

static sol_status_t read_config(sol_comm_t comm, const sol_dev_config_t *from,
                                sol_dev_config_t *config)
{
    char why[256];
    if (from == NULL || from->size < offsetof(sol_dev_config_t, ranks_per_host)) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "sol_dev_comm_create: config is %s: start from "
                              "SOL_DEV_CONFIG_INIT",
                              from == NULL ? "NULL" : "of another size");
    }
    memset(config, 0, sizeof(*config));
    memcpy(config, from, from->size < sizeof(*config) ? from->size : sizeof(*config));
    config->size = sizeof(*config);
    if (sol_dev_check(config, comm->nranks, why, sizeof(why)) != SOL_OK) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "sol_dev_comm_create: %s", why);
    }
    return SOL_OK;
}

sol_status_t sol_dev_comm_create(sol_comm_t comm, const sol_dev_config_t *config,
                                 sol_dev_comm_t *dev)
{
    sol_status_t status = sol_comm_usable(comm, "sol_dev_comm_create");
    if (status == SOL_OK && dev == NULL) {
        status = sol_comm_error(comm, SOL_ERR_ARGUMENT, "sol_dev_comm_create: dev is NULL");
    }
    if (status == SOL_OK &&
        (comm->backend->dev_window == NULL || comm->nranks > SOL_DEV_MAX_RANKS)) {
        status = sol_comm_error(comm, SOL_ERR_UNSUPPORTED,
                                "sol_dev_comm_create: needs GPU ranks, at most %d; this has %d "
                                "%s ranks",
                                SOL_DEV_MAX_RANKS, comm->nranks, comm->backend->name);
    }
    dev_job_t *make = status == SOL_OK ? sol_calloc(1, sizeof(*make)) : NULL;
    if (status == SOL_OK && make == NULL) {
        status = sol_comm_error(comm, SOL_ERR_MEMORY, "sol_dev_comm_create: no memory");
    }
    if (status == SOL_OK) {
        status = read_config(comm, config, &make->config);
    }
    if (status != SOL_OK) {
        sol_free(make);
        return sol_group_note(status);
    }
    make->job =
        (sol_job_t){.run = dev_run, .finish = dev_finish, .comm = comm, .backend = comm->backend};
    make->result = dev;
    return sol_job_submit(&make->job);
}

sol_status_t sol_dev_comm_destroy(sol_comm_t comm, sol_dev_comm_t *dev)
{
    sol_status_t status = sol_comm_valid(comm, "sol_dev_comm_destroy");
    if (status != SOL_OK) {
        return status;
    }
    if (dev == NULL || dev->allocation == NULL) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "sol_dev_comm_destroy: dev is %s",
                              dev == NULL ? "NULL" : "none, or was destroyed already");
    }
    bool step;
    status = sol_use_enter(comm, "sol_dev_comm_destroy", &step);
    if (status == SOL_OK) {
        drop_record(comm, dev->allocation);
        status = comm->backend->mem_free(comm, dev->allocation);
        memset(dev, 0, sizeof(*dev));
        sol_use_exit(step);
    }
    return status;
}

sol_status_t sol_mem_window(sol_comm_t comm, void *memory, sol_window_t *window)
{
    struct sol_bound bound;
    sol_status_t status = sol_comm_usable(comm, "sol_mem_window");
    if (status != SOL_OK) {
        return status;
    }
    if (memory == NULL || window == NULL) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "sol_mem_window: %s is NULL",
                              memory == NULL ? "memory" : "window");
    }
    if (comm->backend->dev_window == NULL) {
        return sol_comm_error(comm, SOL_ERR_UNSUPPORTED, "sol_mem_window: needs GPU ranks");
    }
    bool step;
    status = sol_use_enter(comm, "sol_mem_window", &step);
    if (status == SOL_OK) {
        status = comm->backend->dev_window(comm, memory, window, &bound);
        sol_use_exit(step);
    }
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf.h: the conformance suite's inside. One program, one set of cases, any backend.
 *
 * A case is a function that every rank runs (cases_*.c). It describes calls (conf_call_t) and has
 * them performed by conf_perform, which lays out buffers with guards, calls the library, and
 * compares every byte that the call could have touched with the reference. Nothing here may know
 * which backend runs, except through conf_device_t.
 */
#ifndef TESTS_CONF_H
#define TESTS_CONF_H

#include "common/team.h"
#include "conformance/reference.h"

/* Where buffers live and how the host reaches them. One constant table a backend. */
typedef struct conf_device {
    const char *name;
    sol_backend_kind_t backend;
    bool cheap_alloc; /* alloc is malloc: every small buffer can have its own, of the exact size */
    bool bare; /* memory that is not there lies about each allocation: no guards of our own */
    /* Of a machine that is emulated; 0: no such limit. */
    size_t staging_bytes; /* of communicators */
    size_t little_bytes;  /* of those of cases that ask for little */
    size_t most_bytes;    /* calls of more (count times element size) are left out */
    int patience;         /* deadlines are so many times as long */
    bool (*open)(int rank, void **stream);
    /* A further thread of the rank that has stream `of`: a stream of its own, which close() ends.
     */
    bool (*enter)(void *of, void **stream);
    void (*close)(void *stream);
    void *(*alloc)(size_t bytes);
    void (*free)(void *memory);
    void (*upload)(void *device, const void *host, size_t bytes);
    void (*download)(void *host, const void *device, size_t bytes);
    bool (*sync)(void *stream);
} conf_device_t;

const conf_device_t *conf_device_named(const char *name); /* NULL: there is none */

/* How much is done: --quick under sanitizers and for other compilers, --full by hand. */
typedef enum { CONF_QUICK, CONF_NORMAL, CONF_FULL } conf_level_t;

typedef struct conf_options {
    const conf_device_t *device;
    conf_level_t level;
    uint64_t seed;
    unsigned calls; /* of the randomised case; 0: by level */
} conf_options_t;

/* One operation. Zero in a field is the plain choice. */
typedef struct conf_call {
    sol_func_t func; /* SOL_FUNC_SEND: one message round a ring, in a group; root is the distance */
    sol_dtype_t dtype;
    sol_redop_t op;
    bool premul; /* op is SOL_SUM, with a scalar of each rank */
    size_t count;
    int root;
    unsigned send_offset, recv_offset; /* bytes from a 64-byte boundary */
    bool in_place;
    bool null_if_empty;  /* pass NULL where the count is 0 or the buffer is ignored */
    bool symmetric_send; /* take the buffers from sol_mem_alloc (conf_use_symmetric) */
    bool symmetric_recv;
    ref_kind_t kind;
    uint64_t seed;
} conf_call_t;

typedef struct conf_buffer {
    unsigned char *memory; /* the device's */
    size_t capacity;
    bool own; /* made for one call */
} conf_buffer_t;

/* One rank of a case. */
typedef struct conf {
    const conf_options_t *options;
    const conf_device_t *device;
    team_t *team;
    int rank, nranks;
    sol_comm_t comm;
    void *stream;
    char *doing;         /* the team's text of this rank; a second thread has its own */
    uint64_t random;     /* the same stream on every rank */
    uint64_t own_random; /* another on each */
    unsigned delay_us;   /* before a call, sleep up to this long, now and then */
    unsigned calls;
    unsigned hashes;
    size_t staging_bytes;     /* of communicators; 0: the default */
    bool stopped;             /* a call failed: nothing more is tried on this communicator */
    conf_buffer_t send, recv; /* kept between calls */
    void *symmetric[2];       /* send, recv */
    size_t symmetric_bytes;
    unsigned char *host[4]; /* images: send before, recv expected, read back, scratch */
    size_t host_bytes[4];
} conf_t;

/* Performs and verifies. False if it could not be performed (then conf->stopped). True as well for
 * what the device leaves out. */
bool conf_perform(conf_t *conf, const conf_call_t *call);
/* The same, on another communicator of which this is rank `rank` of `nranks`; only hashes of whole
 * communicators are compared, so none are here. */
bool conf_perform_on(conf_t *conf, sol_comm_t comm, int rank, int nranks, const conf_call_t *call);
/* All ranks compare the results that must be equal everywhere, since the last time. */
void conf_compare_hashes(conf_t *conf);
/*
 * On a bare device, the arrays of an image (norm_reference.h and its like) each in memory of its
 * own, and the pointers in `args` that pointed at them there; then back, and the memory freed. On
 * other devices nothing. Arrays that lie at one place share it.
 */
#define CONF_SPREAD_ARRAYS 16
typedef struct conf_spread {
    unsigned char *array[CONF_SPREAD_ARRAYS]; /* NULL: not there, or shared with an earlier one */
    int arrays;
} conf_spread_t;

bool conf_spread(conf_t *conf, conf_spread_t *spread, unsigned char *base, const size_t *at,
                 const size_t *size, int arrays);
void conf_spread_args(const conf_spread_t *spread, const unsigned char *base, const size_t *at,
                      void *args, size_t bytes);
void conf_gather(conf_t *conf, conf_spread_t *spread, unsigned char *base, const size_t *at,
                 const size_t *size);
/* The library's barrier: false if it failed (then conf->stopped). */
bool conf_barrier(conf_t *conf);
/* "all_reduce of 17 x bfloat16, sum, ..." */
void conf_describe(const conf_call_t *call, char *text, size_t bytes);
/* Allocates or frees the symmetric buffers of this rank. Collective. */
bool conf_use_symmetric(conf_t *conf, size_t bytes);
void conf_drop_symmetric(conf_t *conf);

bool conf_func_reduces(sol_func_t func);
bool conf_func_rooted(sol_func_t func);
/* The functions that conf_call_t covers, ended by SOL_FUNC_COUNT. */
extern const sol_func_t conf_funcs[];
/* Elements from rank `from` to rank `to` of the all_to_all_v that `call` describes. */
size_t conf_pair_count(const conf_call_t *call, int from, int to);

/* Is so much beyond what the device does? Then the case is skipped, and says so. */
bool conf_leaves_out(conf_t *conf, size_t bytes);

/* A count between 0 and `largest`, small ones as likely as large ones. */
size_t conf_random_count(uint64_t *random, size_t largest);
void conf_random_call(conf_t *conf, conf_call_t *call, size_t largest);

/* Cases. */
typedef struct conf_case {
    const char *name;
    void (*run)(conf_t *conf);
    unsigned ranks[3];    /* by level: bit n: run with n ranks, as processes */
    unsigned threads[3];  /* by level: the same, as threads */
    unsigned alone;       /* 1: makes its own communicators, conf->comm is NULL */
    uint64_t epoch;       /* SOLCCL_DEBUG_EPOCH, if not 0 */
    size_t staging_bytes; /* of the communicator; 0: the default */
    int deadline_s;       /* 0: 120 */
} conf_case_t;

extern const conf_case_t conf_cases_data[], conf_cases_comm[], conf_cases_memory[],
    conf_cases_fused[], conf_cases_vocab[], conf_cases_linear[], conf_cases_moe[],
    conf_cases_transfer[], conf_cases_quantized[], conf_cases_halves[]; /* end: name NULL */

/* The program; main() unless CONF_NO_MAIN is defined. */
int conf_main(int argc, char **argv);

#define CONF_DOING 256 /* bytes of conf_t.doing */

#define CONF_N(n) (1u << (n))
#define CONF_ALL 0x1feu   /* 1 to 8 */
#define CONF_MULTI 0x1fcu /* 2 to 8 */

/* A communicator of this backend under the suite's timeout. */
bool conf_comm(conf_t *conf, sol_comm_t *comm, const sol_unique_id_t *id, int rank, int nranks);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor.c: `solccl doctor`: reads the dumps that the ranks' flight recorders wrote (sol_comm_dump,
 * SOLCCL_DUMP_DIR) and says, for each communicator: where each rank is, which one is behind, at
 * which call they differ, who waits for whom, and whom the others have waited for.
 *
 * A dump is a file that somebody else wrote: nothing in it is trusted. It never writes a file.
 */
#include "json.h"
#include "tool.h"

#include "solccl/solccl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FILES 4096
#define MAX_BYTES ((off_t)16 << 20)
/* Less than this, or than this part of all waits, is noise and makes nobody a straggler. */
#define STRAGGLER_NS 1000000
#define STRAGGLER_PART 10

static const char help[] =
    "Usage: solccl doctor FILE|DIRECTORY...\n"
    "\n"
    "Read the dumps of all ranks of a job (SOLCCL_DUMP_DIR, SOLCCL_DUMP_SIGNAL,\n"
    "sol_comm_dump) and say which rank is behind, at which call ranks differ, who waits\n"
    "for whom, and which rank the others wait for most. Of several dumps of a rank the\n"
    "newest counts. Of a DIRECTORY all *.json files are read.\n"
    "\n"
    "Returns 0 if nothing is wrong, 1 if something is, 2 if nothing could be read.\n";

struct op {
    int64_t sequence, collective, count;
    int place; /* root or peer; -1: has none */
    const char *func, *dtype, *redop, *state;
    int64_t waited_ns;
};

struct dump {
    const char *path, *comm, *name, *backend, *reason;
    int rank, nranks;
    int64_t at, collectives, sequence;
    const char *error;
    uint64_t waiting_for;
    int64_t waiting_ns;
    int64_t waits[SOL_MAX_RANKS], waited_ns[SOL_MAX_RANKS];
    struct {
        int64_t samples, last, late_ns, most_ns;
    } skew[SOL_MAX_RANKS];
    struct op *ops;
    size_t nops;
    struct op peers[SOL_MAX_RANKS]; /* func NULL: not known */
    bool peer_known[SOL_MAX_RANKS];
    json_t json;
};

struct dumps {
    struct dump *all[MAX_FILES];
    size_t count, bad;
};

/* What is known of one communicator: the newest dump of each rank. */
struct group {
    int nranks;
    const struct dump *of[SOL_MAX_RANKS];
    struct op last[SOL_MAX_RANKS]; /* from its dump, or as others saw it; func NULL: not known */
    int64_t collectives[SOL_MAX_RANKS]; /* -1: not known */
};

/* --------------------------------------------------------------------------- reading */

static void read_op(const json_value_t *value, struct op *op)
{
    int64_t root = json_int(value, "root", -1), peer = json_int(value, "peer", -1);

    op->sequence = json_int(value, "sequence", 0);
    op->collective = json_int(value, "collective", 0);
    op->count = json_int(value, "count", 0);
    op->place = (int)(root >= 0 ? root : peer);
    op->func = json_text(value, "func", "unknown");
    op->dtype = json_text(value, "dtype", "");
    op->redop = json_text(value, "op", "");
    op->state = json_text(value, "state", "unknown");
    op->waited_ns = json_int(value, "waited_ns", 0);
}

static size_t length_of(const json_value_t *array)
{
    const json_value_t *value;
    size_t n = 0;

    for (value = array ? array->first : NULL; value; value = value->next)
        n++;
    return n;
}

static bool read_ops(const json_value_t *root, struct dump *dump)
{
    const json_value_t *array = json_get(root, "operations"), *value;

    dump->ops = tool_calloc(length_of(array) + 1, sizeof(*dump->ops));
    if (!dump->ops)
        return false;
    for (value = array ? array->first : NULL; value; value = value->next)
        read_op(value, &dump->ops[dump->nops++]);
    return true;
}

/* A rank of an element of "waited" or "peers", or -1. */
static int rank_of(const json_value_t *value, int nranks)
{
    int64_t rank = json_int(value, "rank", -1);

    return rank >= 0 && rank < nranks ? (int)rank : -1;
}

/* What is added up: of 64 ranks for 64 others it still fits (13 days each, in ns). */
static int64_t amount(const json_value_t *value, const char *key)
{
    int64_t most = (int64_t)1 << 50, given = json_int(value, key, 0);

    return given < 0 ? 0 : given < most ? given : most;
}

static void read_others(const json_value_t *root, struct dump *dump)
{
    const json_value_t *array = json_get(root, "waited"), *value;
    int rank;

    for (value = array ? array->first : NULL; value; value = value->next) {
        rank = rank_of(value, dump->nranks);
        if (rank >= 0) {
            dump->waits[rank] = amount(value, "waits");
            dump->waited_ns[rank] = amount(value, "ns");
        }
    }
    array = json_get(root, "peers");
    for (value = array ? array->first : NULL; value; value = value->next) {
        rank = rank_of(value, dump->nranks);
        if (rank < 0)
            continue;
        dump->peer_known[rank] = true;
        if (json_get(value, "last"))
            read_op(json_get(value, "last"), &dump->peers[rank]);
    }
    array = json_get(root, "skew");
    for (value = array ? array->first : NULL; value; value = value->next) {
        rank = rank_of(value, dump->nranks);
        if (rank < 0)
            continue;
        dump->skew[rank].samples = json_int(value, "samples", 0);
        dump->skew[rank].last = json_int(value, "last", 0);
        dump->skew[rank].late_ns = json_int(value, "late_ns", 0);
        dump->skew[rank].most_ns = json_int(value, "most_ns", 0);
    }
    array = json_get(root, "waiting_for");
    for (value = array ? array->first : NULL; value; value = value->next) {
        rank = value->kind == JSON_NUMBER ? atoi(value->text) : -1;
        if (rank >= 0 && rank < dump->nranks)
            dump->waiting_for |= (uint64_t)1 << rank;
    }
}

/* A wait that goes on is in no sum yet: without it, who holds everybody up now would not show. One
 * that failed is, since a dump is written after the call. */
static void count_present_wait(struct dump *dump)
{
    int rank;

    for (rank = 0; !dump->error && rank < dump->nranks; rank++)
        if (dump->waiting_for >> rank & 1) {
            dump->waits[rank]++;
            dump->waited_ns[rank] += dump->waiting_ns;
        }
}

static const char *read_dump(struct dump *dump)
{
    const json_value_t *root = dump->json.root;

    if (json_int(root, "solccl_dump", 0) != 1)
        return "it is no dump of solccl's, or of a version that this one does not know";
    dump->comm = json_text(root, "comm", "");
    dump->name = json_text(root, "name", "");
    dump->backend = json_text(root, "backend", "unknown");
    dump->reason = json_text(root, "reason", "unknown");
    dump->nranks = (int)json_int(root, "nranks", 0);
    dump->rank = (int)json_int(root, "rank", -1);
    if (dump->nranks < 1 || dump->nranks > SOL_MAX_RANKS || dump->rank < 0 ||
        dump->rank >= dump->nranks)
        return "its rank makes no sense";
    dump->at = json_int(root, "at", 0);
    dump->collectives = json_int(root, "collectives", 0);
    dump->sequence = json_int(root, "sequence", 0);
    dump->error = json_text(json_get(root, "error"), "text", NULL);
    dump->waiting_ns = amount(root, "waiting_ns");
    read_others(root, dump);
    count_present_wait(dump);
    return read_ops(root, dump) ? NULL : "out of memory";
}

static char *read_file(const char *path, size_t *bytes, const char **why)
{
    struct stat st;
    char *text = NULL;
    ssize_t got = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    *bytes = 0;
    if (fd < 0 || fstat(fd, &st) != 0) {
        *why = strerror(errno);
    } else if (!S_ISREG(st.st_mode) || st.st_size > MAX_BYTES) {
        *why = "it is no file, or too large for a dump";
    } else {
        text = tool_calloc(1, (size_t)st.st_size + 1);
        while (text && *bytes < (size_t)st.st_size &&
               (got = read(fd, text + *bytes, (size_t)st.st_size - *bytes)) > 0)
            *bytes += (size_t)got;
        if (!text || got < 0)
            *why = text ? strerror(errno) : "out of memory";
    }
    if (fd >= 0)
        close(fd);
    return text;
}

static void free_dump(struct dump *dump)
{
    json_free(&dump->json);
    tool_free(dump->ops);
    tool_free((char *)(uintptr_t)dump->path);
    tool_free(dump);
}

static void load(struct dumps *dumps, const char *path)
{
    const char *why = NULL;
    char text[128];
    size_t bytes = 0;
    struct dump *dump = dumps->count < MAX_FILES ? tool_calloc(1, sizeof(*dump)) : NULL;
    char *copy = tool_calloc(1, strlen(path) + 1);
    char *content = read_file(path, &bytes, &why);

    if (!dump || !copy)
        why = "out of memory, or more files than can be read";
    if (!why && !json_parse(&dump->json, content, bytes, text, sizeof(text)))
        why = text;
    if (!why) {
        dump->path = strcpy(copy, path);
        why = read_dump(dump);
        copy = NULL;
    }
    tool_free(content);
    tool_free(copy);
    if (why) {
        tool_error("doctor", "%s: %s", path, why);
        dumps->bad++;
        if (dump)
            free_dump(dump);
        return;
    }
    dumps->all[dumps->count++] = dump;
}

static bool load_directory(struct dumps *dumps, const char *path)
{
    DIR *directory = opendir(path);
    struct dirent *entry;
    char file[4096];

    if (!directory)
        return false;
    while ((entry = readdir(directory)) != NULL) {
        size_t length = strlen(entry->d_name);

        if (length < 5 || strcmp(entry->d_name + length - 5, ".json"))
            continue;
        if (snprintf(file, sizeof(file), "%s/%s", path, entry->d_name) < (int)sizeof(file))
            load(dumps, file);
    }
    closedir(directory);
    return true;
}

/* --------------------------------------------------------------------------- words */

/* "all_reduce (1024 x float32, sum, root 3)". */
static const char *call_text(const struct op *op, char *text, size_t bytes)
{
    text[0] = '\0';
    tool_append(text, bytes, "%s", op->func);
    if (!strcmp(op->func, "barrier"))
        return text;
    if (!strcmp(op->func, "all_to_all_v"))
        tool_append(text, bytes, " (%s", op->dtype);
    else
        tool_append(text, bytes, " (%lld x %s", (long long)op->count, op->dtype);
    if (op->redop[0])
        tool_append(text, bytes, ", %s", op->redop);
    if (op->place >= 0)
        tool_append(text, bytes, ", %s %d",
                    !strcmp(op->func, "send")   ? "to rank"
                    : !strcmp(op->func, "recv") ? "from rank"
                                                : "root",
                    op->place);
    tool_append(text, bytes, ")");
    return text;
}

/* "rank 1", "ranks 0, 2 and 3". */
static const char *ranks_text(uint64_t mask, char *text, size_t bytes)
{
    bool first = true;
    int rank;

    text[0] = '\0';
    for (rank = 0; mask; rank++, mask >>= 1) {
        if (!(mask & 1))
            continue;
        tool_append(text, bytes, "%s%d",
                    first       ? (mask == 1 ? "rank " : "ranks ")
                    : mask == 1 ? " and "
                                : ", ",
                    rank);
        first = false;
    }
    return text;
}

/* Rank `r`, which has no dump, as the others saw it. A send or receive of its does not tell how
 * many collectives it had called. */
static void look_from_others(struct group *group, int r)
{
    bool known = false, called = false;
    int64_t most = 0;
    int other;

    for (other = 0; other < group->nranks; other++) {
        const struct dump *dump = group->of[other];
        const struct op *seen = dump ? &dump->peers[r] : NULL;

        if (!dump || !dump->peer_known[r])
            continue;
        known = true;
        if (!seen->func)
            continue;
        called = true;
        if (!group->last[r].func || seen->sequence > group->last[r].sequence)
            group->last[r] = *seen;
        most = seen->collective > most ? seen->collective : most;
    }
    if (known && (most > 0 || !called))
        group->collectives[r] = most;
}

/* --------------------------------------------------------------------------- findings */

static void collect(const struct dumps *dumps, const char *comm, struct group *group)
{
    size_t i;
    int r;

    memset(group, 0, sizeof(*group));
    for (i = 0; i < dumps->count; i++) {
        const struct dump *dump = dumps->all[i];

        if (strcmp(dump->comm, comm))
            continue;
        group->nranks = dump->nranks > group->nranks ? dump->nranks : group->nranks;
        if (!group->of[dump->rank] || group->of[dump->rank]->at < dump->at)
            group->of[dump->rank] = dump;
    }
    for (r = 0; r < group->nranks; r++) {
        const struct dump *own = group->of[r];

        group->collectives[r] = own ? own->collectives : -1;
        if (own && own->nops)
            group->last[r] = own->ops[own->nops - 1];
        if (!own)
            look_from_others(group, r);
    }
}

static void print_table(const struct group *group)
{
    char call[256], waits[256];
    int r;

    printf("  rank  collectives  state     last call\n");
    for (r = 0; r < group->nranks; r++) {
        const struct dump *dump = group->of[r];
        const struct op *last = &group->last[r];
        char number[24] = "-";

        if (group->collectives[r] < 0 && !last->func) {
            printf("  %4d            -  no dump   not known\n", r);
            continue;
        }
        if (group->collectives[r] >= 0)
            snprintf(number, sizeof(number), "%lld", (long long)group->collectives[r]);
        printf("  %4d %12s  %-8s  ", r, number, !last->func ? "-" : last->state);
        if (last->func)
            printf("#%lld %s", (long long)last->sequence, call_text(last, call, sizeof(call)));
        else
            printf("none");
        if (dump && dump->waiting_for)
            printf("; %s %.3f s for %s", dump->error ? "waited" : "waits",
                   (double)dump->waiting_ns * 1e-9,
                   ranks_text(dump->waiting_for, waits, sizeof(waits)));
        printf("%s\n", dump ? "" : "  [no dump: as the others saw it]");
    }
}

static int print_errors(const struct group *group)
{
    int r, found = 0;

    for (r = 0; r < group->nranks; r++)
        if (group->of[r] && group->of[r]->error) {
            printf("  error of rank %d: %s\n", r, group->of[r]->error);
            found++;
        }
    return found;
}

/* Ranks without a dump: only a finding where others have failed, or were told to dump. */
static int print_absent(const struct group *group)
{
    uint64_t absent = 0;
    char ranks[256];
    int r;

    for (r = 0; r < group->nranks; r++)
        if (!group->of[r])
            absent |= (uint64_t)1 << r;
    if (!absent)
        return 0;
    printf("  MISSING: no dump of %s: killed, stopped, or not in a call since then\n",
           ranks_text(absent, ranks, sizeof(ranks)));
    return 1;
}

static int print_behind(const struct group *group)
{
    int64_t most = -1, least = INT64_MAX;
    uint64_t behind = 0, ahead = 0;
    char ranks[256], call[256];
    int r;

    for (r = 0; r < group->nranks; r++)
        if (group->collectives[r] >= 0) {
            most = group->collectives[r] > most ? group->collectives[r] : most;
            least = group->collectives[r] < least ? group->collectives[r] : least;
        }
    if (most < 0 || most == least)
        return 0;
    for (r = 0; r < group->nranks; r++) {
        behind |= group->collectives[r] == least ? (uint64_t)1 << r : 0;
        ahead |= group->collectives[r] == most ? (uint64_t)1 << r : 0;
    }
    printf("  BEHIND: %s has called %lld collectives", ranks_text(behind, ranks, sizeof(ranks)),
           (long long)least);
    printf(", %s %lld\n", ranks_text(ahead, ranks, sizeof(ranks)), (long long)most);
    for (r = 0; r < group->nranks; r++)
        if (behind >> r & 1 && group->last[r].func)
            printf("          rank %d's last call is #%lld %s, %s\n", r,
                   (long long)group->last[r].sequence,
                   call_text(&group->last[r], call, sizeof(call)), group->last[r].state);
    return 1;
}

/* Collective `number` as rank `r` called it, or NULL where that is not known. */
static const struct op *find_collective(const struct group *group, int r, int64_t number)
{
    const struct dump *dump = group->of[r];
    size_t i;

    for (i = dump ? dump->nops : 0; i > 0; i--)
        if (dump->ops[i - 1].collective == number)
            return &dump->ops[i - 1];
    return !dump && group->last[r].func && group->last[r].collective == number ? &group->last[r]
                                                                               : NULL;
}

static void print_difference(const struct group *group, int64_t number)
{
    uint64_t left = 0, same;
    char first[256], other[256], ranks[256];
    int r, lead;

    for (r = 0; r < group->nranks; r++)
        left |= find_collective(group, r, number) ? (uint64_t)1 << r : 0;
    printf("  DIFFER at collective %lld:\n", (long long)number);
    while (left) {
        lead = __builtin_ctzll(left);
        call_text(find_collective(group, lead, number), first, sizeof(first));
        same = 0;
        for (r = lead; r < group->nranks; r++)
            if (left >> r & 1 &&
                !strcmp(first, call_text(find_collective(group, r, number), other, sizeof(other))))
                same |= (uint64_t)1 << r;
        printf("          %s called %s\n", ranks_text(same, ranks, sizeof(ranks)), first);
        left &= ~same;
    }
}

/* The first collective that two ranks remember differently. */
static int print_differences(const struct group *group)
{
    int64_t number, from = INT64_MAX, to = 0;
    char first[256], other[256];
    int r;

    for (r = 0; r < group->nranks; r++) {
        const struct dump *dump = group->of[r];
        size_t i = 0;

        while (dump && i < dump->nops && !dump->ops[i].collective)
            i++;
        if (dump && i < dump->nops && dump->ops[i].collective < from)
            from = dump->ops[i].collective;
        to = group->collectives[r] > to ? group->collectives[r] : to;
    }
    from = to - from > 1024 ? to - 1024 : from;
    for (number = from; number <= to; number++) {
        bool have = false;

        for (r = 0; r < group->nranks; r++) {
            const struct op *op = find_collective(group, r, number);

            if (!op)
                continue;
            call_text(op, other, sizeof(other));
            if (have && strcmp(first, other)) {
                print_difference(group, number);
                return 1;
            }
            memcpy(first, other, sizeof(first));
            have = true;
        }
    }
    return 0;
}

/* The next call of `func` with `place` as its peer, from number *at of the dump's calls on. */
static const struct op *next_pair(const struct dump *dump, const char *func, int place, size_t *at)
{
    while (*at < dump->nops) {
        const struct op *op = &dump->ops[(*at)++];

        if (op->place == place && !strcmp(op->func, func))
            return op;
    }
    return NULL;
}

/* The first send of rank `from` to rank `to` that its receive does not fit: the n-th of one belongs
 * to the n-th of the other, which can be told as long as both recorders hold all calls. */
static int print_pair(const struct group *group, int from, int to)
{
    const struct dump *sender = group->of[from], *receiver = group->of[to];
    const struct op *send, *recv;
    size_t sent = 0, received = 0;
    char text[256];
    int number;

    if (!sender || !receiver || !sender->nops || !receiver->nops || sender->ops[0].sequence != 1 ||
        receiver->ops[0].sequence != 1)
        return 0;
    for (number = 1; (send = next_pair(sender, "send", to, &sent)) &&
                     (recv = next_pair(receiver, "recv", from, &received));
         number++) {
        if (send->count == recv->count && !strcmp(send->dtype, recv->dtype))
            continue;
        printf("  DIFFER at message %d from rank %d to rank %d:\n", number, from, to);
        printf("          rank %d called #%lld %s\n", from, (long long)send->sequence,
               call_text(send, text, sizeof(text)));
        printf("          rank %d called #%lld %s\n", to, (long long)recv->sequence,
               call_text(recv, text, sizeof(text)));
        return 1;
    }
    return 0;
}

static int print_pairs(const struct group *group)
{
    int from, to, found = 0;

    for (from = 0; from < group->nranks; from++)
        for (to = 0; to < group->nranks; to++)
            found += print_pair(group, from, to);
    return found;
}

/* From rank to rank along who waits for whom, to where it ends. */
static int print_chains(const struct group *group)
{
    uint64_t ends = 0, seen, waiting = 0;
    char ranks[256];
    int r, at;

    for (r = 0; r < group->nranks; r++) {
        if (!group->of[r] || !group->of[r]->waiting_for)
            continue;
        waiting |= (uint64_t)1 << r;
        for (at = r, seen = 0; !(seen >> at & 1);) {
            const struct dump *dump = group->of[at];

            seen |= (uint64_t)1 << at;
            if (!dump || !dump->waiting_for)
                break;
            at = __builtin_ctzll(dump->waiting_for);
        }
        ends |= (uint64_t)1 << at;
    }
    if (!waiting)
        return 0;
    if (ends & ~waiting)
        printf("  WAITING: all of it ends at %s, which %s for nobody: look there\n",
               ranks_text(ends & ~waiting, ranks, sizeof(ranks)), "waits");
    else
        printf("  WAITING: %s wait for each other in a circle\n",
               ranks_text(waiting, ranks, sizeof(ranks)));
    return 1;
}

/* Whom the others have waited for: per rank, over the communicator's life. */
static void print_stragglers(const struct group *group)
{
    int64_t total = 0, most = 0;
    int r, other, worst = -1;

    for (r = 0; r < group->nranks; r++)
        for (other = 0; group->of[r] && other < group->nranks; other++)
            total += group->of[r]->waited_ns[other];
    if (total == 0)
        return;
    printf("  waits longer than a spin:\n  rank    others waited for it (times)    it waited\n");
    for (r = 0; r < group->nranks; r++) {
        int64_t by = 0, times = 0, own = 0;

        for (other = 0; other < group->nranks; other++) {
            by += group->of[other] ? group->of[other]->waited_ns[r] : 0;
            times += group->of[other] ? group->of[other]->waits[r] : 0;
            own += group->of[r] ? group->of[r]->waited_ns[other] : 0;
        }
        printf("  %4d %18.3f ms %8lld %9.3f ms\n", r, (double)by * 1e-6, (long long)times,
               (double)own * 1e-6);
        if (by - own > most) {
            most = by - own;
            worst = r;
        }
    }
    if (most >= STRAGGLER_NS && most >= total / STRAGGLER_PART)
        printf("  STRAGGLER: rank %d was waited for %.3f ms longer than it waited itself\n", worst,
               (double)most * 1e-6);
}

/* How late each rank comes, after the first: any rank's dump tells it of all, so the one that knows
 * of the most arrivals is taken. */
static void print_skew(const struct group *group)
{
    const struct dump *best = NULL;
    int64_t late = 0;
    int r, worst = -1;

    for (r = 0; r < group->nranks; r++)
        if (group->of[r] && (!best || group->of[r]->skew[0].samples > best->skew[0].samples))
            best = group->of[r];
    if (!best || best->skew[0].samples <= 0)
        return;
    printf("  arrivals at the last %lld collectives that were clocked, after the first rank's:\n"
           "  rank    late on average         at most  came last\n",
           (long long)best->skew[0].samples);
    for (r = 0; r < group->nranks; r++) {
        printf("  %4d %15.3f us %12.3f us %9.0f%%\n", r, (double)best->skew[r].late_ns * 1e-3,
               (double)best->skew[r].most_ns * 1e-3,
               100.0 * (double)best->skew[r].last / (double)best->skew[0].samples);
        if (best->skew[r].late_ns > late) {
            late = best->skew[r].late_ns;
            worst = r;
        }
    }
    if (worst >= 0)
        printf("  LATE: rank %d, by %.3f us on average\n", worst, (double)late * 1e-3);
}

static int report(const struct dumps *dumps, const struct dump *sample)
{
    struct group group;
    int found, r, have = 0;

    collect(dumps, sample->comm, &group);
    for (r = 0; r < group.nranks; r++)
        have += group.of[r] != NULL;
    printf("comm %.4s%s%s%s, %d %s ranks, %d of them with a dump (reason: %s)\n", sample->comm,
           sample->name[0] ? " (" : "", sample->name, sample->name[0] ? ")" : "", group.nranks,
           sample->backend, have, sample->reason);
    print_table(&group);
    found = print_errors(&group);
    found += print_absent(&group);
    found += print_behind(&group);
    found += print_differences(&group);
    found += print_pairs(&group);
    found += print_chains(&group);
    print_stragglers(&group);
    print_skew(&group);
    if (!found)
        printf("  nothing is wrong: all ranks are at the same call\n");
    printf("\n");
    return found;
}

static bool reported_before(const struct dumps *dumps, size_t i)
{
    size_t k;

    for (k = 0; k < i; k++)
        if (!strcmp(dumps->all[k]->comm, dumps->all[i]->comm))
            return true;
    return false;
}

int tool_doctor(int argc, char **argv)
{
    struct dumps *dumps;
    struct stat st;
    int i, found = 0;
    size_t k;

    for (i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            fputs(help, stdout);
            return 0;
        }
    if (argc < 2 || argv[1][0] == '-')
        return tool_usage("doctor", "the dumps (files, or a directory) are missing");
    dumps = tool_calloc(1, sizeof(*dumps));
    if (!dumps)
        return TOOL_USAGE;
    for (i = 1; i < argc; i++) {
        if (stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode))
            load_directory(dumps, argv[i]);
        else
            load(dumps, argv[i]);
    }
    for (k = 0; k < dumps->count; k++)
        if (!reported_before(dumps, k))
            found += report(dumps, dumps->all[k]);
    if (dumps->count == 0)
        tool_error("doctor", "no dump was found");
    i = dumps->count == 0 ? TOOL_USAGE : found > 0;
    for (k = 0; k < dumps->count; k++)
        free_dump(dumps->all[k]);
    tool_free(dumps);
    return i;
}

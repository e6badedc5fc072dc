/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_plan.c: reading, sorting and finding rules. */
#include "backend/cuda/cuda_plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE (1u << 20)
#define MAX_THREADS 512
#define MAX_CTAS 1024
#define FIELDS 8

/* Where the parser stands. */
struct reader {
    struct sol_cuda_plan *plan;
    const char *machine; /* of this GPU */
    int nranks;
    sol_cuda_algorithm_fn algorithm;
    int line;
    bool ours; /* the lines here are for this machine */
    size_t capacity;
};

static sol_status_t bad_line(const struct reader *in, const char *what, const char *found)
{
    const char *file = in->plan->file[0] != '\0' ? in->plan->file : "tuning";
    return sol_thread_error(SOL_ERR_ARGUMENT, "%s, line %d: %s, found \"%.60s\"", file, in->line,
                            what, found);
}

static bool read_number(const char *text, size_t minimum, size_t maximum, size_t *value)
{
    char *end = NULL;
    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || number < minimum || number > maximum) {
        return false;
    }
    *value = (size_t)number;
    return true;
}

static int func_of(const char *name)
{
    for (int f = 0; f < SOL_FUNC_COUNT; f++) {
        if (strcmp(name, sol_func_name((sol_func_t)f)) == 0) {
            return f;
        }
    }
    return -1;
}

/* -1: any; -2: not a type */
static int dtype_of(const char *name)
{
    if (strcmp(name, "any") == 0) {
        return -1;
    }
    for (int d = 0; d < SOL_DTYPE_COUNT; d++) {
        if (strcmp(name, sol_dtype_name((sol_dtype_t)d)) == 0) {
            return d;
        }
    }
    return -2;
}

static sol_status_t keep(struct reader *in, const struct sol_cuda_rule *rule)
{
    struct sol_cuda_plan *plan = in->plan;
    if (!in->ours || rule->nranks != in->nranks) {
        return SOL_OK;
    }
    if (plan->count == in->capacity) {
        size_t capacity = in->capacity ? in->capacity * 2 : 64;
        struct sol_cuda_rule *rules = sol_calloc(capacity, sizeof *rules);
        if (rules == NULL) {
            return sol_thread_error(SOL_ERR_MEMORY, "no memory for the tuning file");
        }
        if (plan->count != 0) {
            memcpy(rules, plan->rules, plan->count * sizeof *rules);
        }
        sol_free(plan->rules);
        plan->rules = rules;
        in->capacity = capacity;
    }
    plan->rules[plan->count++] = *rule;
    return SOL_OK;
}

static sol_status_t read_rule(struct reader *in, char *const *field)
{
    struct sol_cuda_rule rule;
    size_t ranks, ctas, threads, vectors;
    memset(&rule, 0, sizeof rule);
    rule.line = in->line;
    int func = func_of(field[0]);
    rule.dtype = dtype_of(field[1]);
    if (func < 0) {
        return bad_line(in, "expected a function such as all_reduce", field[0]);
    }
    if (rule.dtype == -2) {
        return bad_line(in, "expected a type such as bfloat16, or any", field[1]);
    }
    if (!read_number(field[2], 1, SOL_MAX_RANKS, &ranks)) {
        return bad_line(in, "expected a number of ranks", field[2]);
    }
    if (!read_number(field[3], 0, SIZE_MAX, &rule.bytes)) {
        return bad_line(in, "expected a number of bytes", field[3]);
    }
    rule.choice.algorithm = in->algorithm(field[4]);
    if (rule.choice.algorithm == 0) {
        return bad_line(in, "expected a protocol", field[4]);
    }
    if (!read_number(field[5], 0, MAX_CTAS, &ctas)) {
        return bad_line(in, "expected a number of CTAs", field[5]);
    }
    if (!read_number(field[6], 0, MAX_THREADS, &threads) || threads % 32 != 0) {
        return bad_line(in, "expected threads: a multiple of 32 up to 512", field[6]);
    }
    if (!read_number(field[7], 0, 4, &vectors) || vectors == 3) {
        return bad_line(in, "expected vectors: 0, 1, 2 or 4", field[7]);
    }
    rule.func = (sol_func_t)func;
    rule.nranks = (int)ranks;
    rule.choice.ctas = (int)ctas;
    rule.choice.threads = (int)threads;
    rule.choice.vectors = (int)vectors;
    return keep(in, &rule);
}

/* `line` is cut to pieces. */
static sol_status_t read_line(struct reader *in, char *line)
{
    char *field[FIELDS + 1];
    char *rest = NULL;
    int fields = 0;
    char *comment = strchr(line, '#');
    if (comment != NULL) {
        *comment = '\0';
    }
    if (strncmp(line, "machine ", 8) == 0) {
        char *name = line + 8 + strspn(line + 8, " \t");
        size_t length = strlen(name);
        while (length > 0 && strchr(" \t\r", name[length - 1]) != NULL) {
            name[--length] = '\0';
        }
        in->ours = strcmp(name, in->machine) == 0;
        return SOL_OK;
    }
    for (char *word = strtok_r(line, " \t\r", &rest); word != NULL && fields <= FIELDS;
         word = strtok_r(NULL, " \t\r", &rest)) {
        field[fields++] = word;
    }
    if (fields == 0) {
        return SOL_OK;
    }
    if (fields != FIELDS) {
        return bad_line(in, "expected 8 fields", field[fields - 1]);
    }
    return read_rule(in, field);
}

static int compare_rules(const void *left, const void *right)
{
    const struct sol_cuda_rule *a = left, *b = right;
    if (a->func != b->func) {
        return a->func < b->func ? -1 : 1;
    }
    if ((a->dtype < 0) != (b->dtype < 0)) {
        return a->dtype < 0 ? 1 : -1; /* "any" behind the exact ones */
    }
    if (a->bytes != b->bytes) {
        return a->bytes < b->bytes ? -1 : 1;
    }
    return a->line - b->line;
}

sol_status_t sol_cuda_plan_parse(struct sol_cuda_plan *plan, const char *text, const char *machine,
                                 int nranks, sol_cuda_algorithm_fn algorithm)
{
    struct reader in = {plan, machine, nranks, algorithm, 0, true, 0};
    char line[512];
    bool header = false;
    sol_status_t status = SOL_OK;
    while (*text != '\0' && status == SOL_OK) {
        size_t length = strcspn(text, "\n");
        in.line++;
        if (length >= sizeof line) {
            return bad_line(&in, "expected a shorter line", text);
        }
        memcpy(line, text, length);
        line[length] = '\0';
        text += length + (text[length] == '\n');
        if (!header) {
            header = strcmp(line, "solccl-tuning 1") == 0;
            status = header ? SOL_OK : bad_line(&in, "expected \"solccl-tuning 1\"", line);
        } else {
            status = read_line(&in, line);
        }
    }
    if (status == SOL_OK && !header) {
        in.line = 1;
        status = bad_line(&in, "expected \"solccl-tuning 1\"", "");
    }
    if (status != SOL_OK) {
        return status;
    }
    if (plan->count > 1) {
        qsort(plan->rules, plan->count, sizeof plan->rules[0], compare_rules);
    }
    size_t at = 0;
    for (int f = 0; f <= SOL_FUNC_COUNT; f++) {
        while (at < plan->count && (int)plan->rules[at].func < f) {
            at++;
        }
        plan->first[f] = at;
    }
    return SOL_OK;
}

/* The whole file as a string; NULL and a thread error if it cannot be had. */
static char *read_file(const char *path)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        sol_thread_error(SOL_ERR_ARGUMENT, "SOLCCL_TUNING_FILE: cannot open %s: %m", path);
        return NULL;
    }
    char *text = sol_calloc(1, MAX_FILE + 1);
    size_t length = text != NULL ? fread(text, 1, MAX_FILE + 1, file) : 0;
    bool failed = ferror(file) != 0 || length > MAX_FILE;
    fclose(file);
    if (text == NULL || failed || memchr(text, '\0', length) != NULL) {
        sol_thread_error(SOL_ERR_ARGUMENT,
                         "SOLCCL_TUNING_FILE: %s cannot be read as text of at most 1 MiB", path);
        sol_free(text);
        return NULL;
    }
    text[length] = '\0';
    return text;
}

static sol_status_t read_environment(struct sol_cuda_plan *plan, sol_cuda_algorithm_fn algorithm)
{
    char why[256];
    long ctas = 0, threads = 0, vectors = 0;
    const char *protocol = getenv("SOLCCL_CUDA_PROTOCOL");
    if (protocol != NULL && protocol[0] != '\0' && strcmp(protocol, "auto") != 0) {
        plan->forced.algorithm = algorithm(protocol);
        if (plan->forced.algorithm == 0) {
            return sol_thread_error(SOL_ERR_ARGUMENT,
                                    "environment variable SOLCCL_CUDA_PROTOCOL is \"%.60s\", which "
                                    "is no protocol (solccl info lists them)",
                                    protocol);
        }
    }
    if (sol_env_int("SOLCCL_CUDA_CTAS", 0, MAX_CTAS, &ctas, why, sizeof why) != SOL_OK ||
        sol_env_int("SOLCCL_CUDA_THREADS", 0, MAX_THREADS, &threads, why, sizeof why) != SOL_OK ||
        sol_env_int("SOLCCL_CUDA_VECTORS", 0, 4, &vectors, why, sizeof why) != SOL_OK) {
        return sol_thread_error(SOL_ERR_ARGUMENT, "%s", why);
    }
    if (threads % 32 != 0 || vectors == 3) {
        return sol_thread_error(SOL_ERR_ARGUMENT, "SOLCCL_CUDA_THREADS must be a multiple of 32, "
                                                  "SOLCCL_CUDA_VECTORS 0, 1, 2 or 4");
    }
    plan->forced.ctas = (int)ctas;
    plan->forced.threads = (int)threads;
    plan->forced.vectors = (int)vectors;
    return SOL_OK;
}

sol_status_t sol_cuda_plan_open(struct sol_cuda_plan *plan, const char *machine, int nranks,
                                sol_cuda_algorithm_fn algorithm)
{
    memset(plan, 0, sizeof *plan);
    sol_status_t status = read_environment(plan, algorithm);
    const char *path = sol_env_path("SOLCCL_TUNING_FILE");
    if (status != SOL_OK || path == NULL || path[0] == '\0') {
        return status;
    }
    char *text = read_file(path);
    if (text == NULL) {
        return SOL_ERR_ARGUMENT;
    }
    snprintf(plan->file, sizeof plan->file, "%s", path);
    status = sol_cuda_plan_parse(plan, text, machine, nranks, algorithm);
    sol_free(text);
    if (status != SOL_OK) {
        sol_cuda_plan_close(plan);
    }
    return status;
}

void sol_cuda_plan_close(struct sol_cuda_plan *plan)
{
    sol_free(plan->rules);
    memset(plan, 0, sizeof *plan);
}

const struct sol_cuda_rule *sol_cuda_plan_find(const struct sol_cuda_plan *plan, sol_func_t func,
                                               sol_dtype_t dtype, size_t bytes)
{
    for (size_t i = plan->first[func]; i < plan->first[func + 1]; i++) {
        const struct sol_cuda_rule *rule = &plan->rules[i];
        if ((rule->dtype < 0 || rule->dtype == (int)dtype) && bytes <= rule->bytes) {
            return rule;
        }
    }
    return NULL;
}

uint64_t sol_cuda_plan_digest(const struct sol_cuda_plan *plan)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a, word by word: only equality counts */
    const uint64_t prime = 1099511628211u;
    const struct sol_cuda_choice *c = &plan->forced;
    for (size_t i = 0; i <= plan->count; i++) {
        const uint64_t words[4] = {(uint64_t)c->algorithm, (uint64_t)c->ctas, (uint64_t)c->threads,
                                   (uint64_t)c->vectors};
        for (int w = 0; w < 4; w++) {
            hash = (hash ^ words[w]) * prime;
        }
        if (i < plan->count) {
            const struct sol_cuda_rule *rule = &plan->rules[i];
            hash = (hash ^ (uint64_t)rule->func) * prime;
            hash = (hash ^ (uint64_t)(rule->dtype + 1)) * prime;
            hash = (hash ^ rule->bytes) * prime;
            c = &rule->choice;
        }
    }
    return hash;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_doctor.c: the JSON reader on good and broken texts, and what `solccl doctor` says about
 * dumps that were written by hand: the expectation follows from them.
 */
#include "json.h"
#include "tool.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* ---------------------------------------------------------------------------- JSON */

static bool parses(const char *text)
{
    json_t json;
    char why[128] = "";
    bool good = json_parse(&json, text, strlen(text), why, sizeof(why));
    json_free(&json);
    assert_int_equal(good, why[0] == '\0');
    return good;
}

static void json_values(void **state)
{
    static const char text[] =
        " {\"a\": [1, -2.5e3, {}], \"b\" : \"x\\\"\\u00e9\\n\",\"c\":{\"d\":null,"
        "\"e\":true},\"f\": [] , \"g\": 9223372036854775807} ";
    json_t json;
    char why[128];
    (void)state;
    assert_true(json_parse(&json, text, strlen(text), why, sizeof(why)));
    const json_value_t *a = json_get(json.root, "a");
    assert_int_equal(a->kind, JSON_ARRAY);
    assert_string_equal(a->first->text, "1");
    assert_string_equal(a->first->next->text, "-2.5e3");
    assert_int_equal(a->first->next->next->kind, JSON_OBJECT);
    assert_null(a->first->next->next->next);
    assert_string_equal(json_text(json.root, "b", ""), "x\"\xc3\xa9\n");
    assert_int_equal(json_get(json_get(json.root, "c"), "e")->kind, JSON_TRUE);
    assert_null(json_get(json.root, "f")->first);
    assert_true(json_int(json.root, "g", 0) == INT64_MAX);
    assert_int_equal(json_int(json.root, "b", 7), 7);
    assert_int_equal(json_int(json.root, "none", 8), 8);
    assert_null(json_get(a, "a"));
    json_free(&json);
}

static void json_broken(void **state)
{
    static const char *const broken[] = {"",
                                         " ",
                                         "{",
                                         "[",
                                         "\"",
                                         "\"\\",
                                         "\"\\u12",
                                         "{\"a\"",
                                         "{\"a\":",
                                         "{\"a\":1",
                                         "{\"a\":1,}",
                                         "[1,]",
                                         "[1 2]",
                                         "{1:2}",
                                         "nul",
                                         "tru",
                                         "1.2.3",
                                         "--1",
                                         "[1]]",
                                         "{}{}",
                                         "\"a\nb\"",
                                         "[\"\\x\"]",
                                         "]",
                                         ":",
                                         "99999999999999999999999999999999999999999999999999",
                                         "{\"a\":1 \"b\":2}",
                                         "[}",
                                         "{]",
                                         "+",
                                         "e"};
    char deep[JSON_DEPTH + 2];
    (void)state;
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++)
        if (parses(broken[i]))
            fail_msg("'%s' was read", broken[i]);
    memset(deep, '[', sizeof(deep) - 1);
    deep[sizeof(deep) - 1] = '\0';
    assert_false(parses(deep));
    assert_true(parses("[[[[]]]]"));
    assert_true(parses("7"));
}

/* -------------------------------------------------------------------------- doctor */

#define MAX_DUMPS 8

/* Runs the doctor on texts; returns its status, and what it printed in `out`. */
static int doctor(const char *const *texts, char *out, size_t bytes)
{
    char paths[MAX_DUMPS][64], *argv[MAX_DUMPS + 2] = {(char *)(uintptr_t) "doctor"};
    int fds[MAX_DUMPS], n = 0;
    for (; texts[n]; n++) {
        fds[n] = memfd_create("dump", 0);
        assert_true(write(fds[n], texts[n], strlen(texts[n])) == (ssize_t)strlen(texts[n]));
        snprintf(paths[n], sizeof(paths[n]), "/proc/self/fd/%d", fds[n]);
        argv[1 + n] = paths[n];
    }
    int captured = memfd_create("out", 0), saved = dup(STDOUT_FILENO);
    fflush(stdout);
    dup2(captured, STDOUT_FILENO);
    int status = tool_doctor(n + 1, argv);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    ssize_t got = pread(captured, out, bytes - 1, 0);
    out[got > 0 ? got : 0] = '\0';
    close(captured);
    for (int i = 0; i < n; i++)
        close(fds[i]);
    return status;
}

static void says(const char *out, const char *words)
{
    if (!strstr(out, words))
        fail_msg("not said: %s\n%s", words, out);
}

#define HEAD(rank, at, collectives)                                                                \
    "{\"solccl_dump\": 1, \"reason\": \"error\", \"at\": " at ", \"comm\": \"00ff000000000001\", " \
    "\"name\": \"train\", \"backend\": \"cpu\", \"nranks\": 3, \"rank\": " rank                    \
    ", \"collectives\": " collectives ", "
#define OP(sequence, number, func, count, more)                                                    \
    "{\"sequence\": " sequence ", \"collective\": " number ", \"func\": \"" func                   \
    "\", \"count\": " count ", \"dtype\": \"float32\"" more "}"

/* Rank 1 called a broadcast where the others called an all_reduce. */
static void doctor_differ(void **state)
{
    static const char *const dumps[] = {
        HEAD("0", "5", "2") "\"operations\": [" OP("1", "1", "barrier", "0", "") "," OP(
            "2", "2", "all_reduce", "8", ", \"op\": \"sum\", \"state\": \"failed\"") "]}",
        HEAD("1", "5", "2") "\"operations\": [" OP("1", "1", "barrier", "0", "") "," OP(
            "2", "2", "broadcast", "8", ", \"root\": 2") "]}",
        HEAD("2", "5", "2") "\"operations\": [" OP("2", "2", "all_reduce", "8",
                                                   ", \"op\": \"sum\"") "]}",
        NULL};
    char out[4096];
    (void)state;
    assert_int_equal(doctor(dumps, out, sizeof(out)), 1);
    says(out, "comm 00ff (train), 3 cpu ranks, 3 of them with a dump");
    says(out, "DIFFER at collective 2:");
    says(out, "ranks 0 and 2 called all_reduce (8 x float32, sum)");
    says(out, "rank 1 called broadcast (8 x float32, root 2)");
    assert_null(strstr(out, "BEHIND"));
    assert_null(strstr(out, "MISSING"));
}

/* Rank 2 wrote none but was seen at #4; 0 waits for 1, 1 for 2. An older dump of rank 0 is passed
 * over. */
static void doctor_behind(void **state)
{
    static const char *const dumps[] = {
        HEAD("0", "9",
             "5") "\"error\": {\"status\": -5, \"text\": \"too late\"}, \"waiting_for\": [1], "
                  "\"waiting_ns\": 1500000000, \"waited\": [{\"rank\": 1, \"waits\": 2, \"ns\": "
                  "1000000}, {\"rank\": 2, \"waits\": 1, \"ns\": 4000000}, {\"rank\": 77, "
                  "\"waits\": 1, \"ns\": 1}], \"operations\": [" OP("5", "5", "all_reduce", "1",
                                                                    "") "]}",
        HEAD("1", "9", "5") "\"waiting_for\": [2], \"peers\": [{\"rank\": 2, \"pid\": 7, "
                            "\"last\": " OP(
                                "4", "4", "reduce", "1",
                                ", \"root\": 0, \"state\": \"done\"") "}], \"operations\": "
                                                                      "[" OP("5", "5", "all_reduce",
                                                                             "1", "") "]}",
        HEAD("0", "1", "1") "\"operations\": [" OP("1", "1", "gather", "1", "") "]}", NULL};
    char out[4096];
    (void)state;
    assert_int_equal(doctor(dumps, out, sizeof(out)), 1);
    says(out, "error of rank 0: too late");
    says(out, "MISSING: no dump of rank 2");
    says(out, "BEHIND: rank 2 has called 4 collectives, ranks 0 and 1 5");
    says(out, "rank 2's last call is #4 reduce (1 x float32, root 0), done");
    says(out, "WAITING: all of it ends at rank 2");
    says(out, "STRAGGLER: rank 2 was waited for 4.000 ms");
    assert_null(strstr(out, "DIFFER"));
}

/* Rank 2 wrote none, and was last seen in a send, which does not tell how many collectives it had
 * called: so it is not said to be behind. */
static void doctor_seen_in_a_send(void **state)
{
    static const char *const dumps[] = {
        HEAD("0", "9", "3") "\"peers\": [{\"rank\": 2, \"pid\": 7, \"last\": " OP(
            "4", "0", "send", "99",
            ", \"peer\": 0, \"state\": \"done\"") "}], \"operations\": [" OP("3", "3", "barrier",
                                                                             "0", "") "]}",
        HEAD("1", "9", "3") "\"operations\": [" OP("3", "3", "barrier", "0",
                                                   ", \"state\": \"done\"") "]}",
        NULL};
    char out[4096];
    (void)state;
    assert_int_equal(doctor(dumps, out, sizeof(out)), 1);
    says(out, "     2            -  done      #4 send (99 x float32");
    says(out, "MISSING: no dump of rank 2");
    assert_null(strstr(out, "BEHIND"));
}

/* By signal: 0 and 2 wait for 1 now, for 2 s, which no sum holds yet. What they waited before is
 * noise that names rank 2. */
static void doctor_present_wait(void **state)
{
    static const char *const dumps[] = {
        HEAD("0", "9", "6") "\"waiting_for\": [1], \"waiting_ns\": 2000000000, \"waited\": "
                            "[{\"rank\": 2, \"waits\": 1, \"ns\": 53000}], \"operations\": "
                            "[" OP("6", "6", "barrier", "0", "") "]}",
        HEAD("1", "9", "6") "\"waited\": [{\"rank\": 2, \"waits\": 1, \"ns\": 53000}], "
                            "\"operations\": [" OP("6", "6", "barrier", "0", "") "]}",
        HEAD("2", "9", "6") "\"waiting_for\": [1], \"waiting_ns\": 2000000000, \"operations\": "
                            "[" OP("6", "6", "barrier", "0", "") "]}",
        NULL};
    char out[4096];
    (void)state;
    assert_int_equal(doctor(dumps, out, sizeof(out)), 1);
    says(out, "     1           4000.000 ms        2     0.053 ms");
    says(out, "STRAGGLER: rank 1 was waited for 3999.947 ms longer");
}

/* Some microseconds, and a small part of long waits, make no straggler. */
static void doctor_no_straggler(void **state)
{
    static const char *const little[] = {
        HEAD("0", "9", "0") "\"waited\": [{\"rank\": 2, \"waits\": 1, \"ns\": 999999}], "
                            "\"operations\": []}",
        HEAD("1", "9", "0") "\"operations\": []}", NULL};
    static const char *const balanced[] = {
        HEAD("0", "9", "0") "\"waited\": [{\"rank\": 2, \"waits\": 9, \"ns\": 60000000}], "
                            "\"operations\": []}",
        HEAD("2", "9", "0") "\"waited\": [{\"rank\": 0, \"waits\": 9, \"ns\": 50000000}], "
                            "\"operations\": []}",
        NULL};
    char out[4096];
    (void)state;
    doctor(little, out, sizeof(out));
    says(out, "     2              1.000 ms        1     0.000 ms");
    assert_null(strstr(out, "STRAGGLER"));
    doctor(balanced, out, sizeof(out));
    says(out, "     2             60.000 ms        9    50.000 ms");
    assert_null(strstr(out, "STRAGGLER"));
}

#define PAIR(sequence, func, count, peer) OP(sequence, "0", func, count, ", \"peer\": " peer)

/* Rank 0's second message to 1 is longer than 1 asks for; those to and from 2 do not count with it.
 * Of calls that the recorder has forgotten nothing is said. */
static void doctor_pairs(void **state)
{
    static const char sender[] =
        HEAD("0", "9", "0") "\"operations\": [" PAIR("1", "send", "8", "1") "," PAIR(
            "2", "send", "5", "2") "," PAIR("3", "recv", "4", "1") "," PAIR("4", "send", "100",
                                                                            "1") "]}";
    static const char receiver[] =
        HEAD("1", "9", "0") "\"operations\": [" PAIR("1", "send", "4", "0") "," PAIR(
            "2", "recv", "8", "0") "," PAIR("3", "recv", "7", "2") "," PAIR("4", "recv", "99",
                                                                            "0") "]}";
    static const char late[] =
        HEAD("1", "9", "0") "\"operations\": [" PAIR("4", "recv", "99", "0") "]}";
    const char *const whole[] = {sender, receiver, NULL};
    const char *const forgotten[] = {sender, late, NULL};
    char out[4096];
    (void)state;
    assert_int_equal(doctor(whole, out, sizeof(out)), 1);
    says(out, "DIFFER at message 2 from rank 0 to rank 1:\n"
              "          rank 0 called #4 send (100 x float32, to rank 1)\n"
              "          rank 1 called #4 recv (99 x float32, from rank 0)\n");
    assert_null(strstr(strstr(out, "DIFFER") + 1, "DIFFER"));
    doctor(forgotten, out, sizeof(out));
    assert_null(strstr(out, "DIFFER"));
}

/* The dump that knows of more arrivals counts; a strange rank in it does not. */
static void doctor_skew(void **state)
{
    static const char *const dumps[] = {
        HEAD("0", "9", "0") "\"skew\": [{\"rank\": 0, \"samples\": 2, \"last\": 2, \"late_ns\": "
                            "77777, \"most_ns\": 99999}], \"operations\": []}",
        HEAD("1", "9", "0") "\"skew\": [{\"rank\": 0, \"samples\": 8, \"last\": 2, \"late_ns\": "
                            "1250, \"most_ns\": 3000}, {\"rank\": 1, \"samples\": 8, \"last\": 6, "
                            "\"late_ns\": 250500, \"most_ns\": 1000000}, {\"rank\": 2, "
                            "\"samples\": 8, \"last\": 0, \"late_ns\": 0, \"most_ns\": 0}, "
                            "{\"rank\": 3, \"samples\": 8, \"late_ns\": 9000000}], "
                            "\"operations\": []}",
        HEAD("2", "9", "0") "\"skew\": [], \"operations\": []}", NULL};
    char out[4096];
    (void)state;
    assert_int_equal(doctor(dumps, out, sizeof(out)), 0);
    says(out, "arrivals at the last 8 collectives");
    says(out, "     0           1.250 us        3.000 us        25%");
    says(out, "     1         250.500 us     1000.000 us        75%");
    says(out, "LATE: rank 1, by 250.500 us on average");
}

static void doctor_circle(void **state)
{
    static const char *const dumps[] = {
        HEAD("0", "9", "0") "\"waiting_for\": [1], \"operations\": [" OP("1", "0", "recv", "1",
                                                                         ", \"peer\": 1") "]}",
        HEAD("1", "9", "0") "\"waiting_for\": [0], \"operations\": [" OP("1", "0", "recv", "1",
                                                                         ", \"peer\": 0") "]}",
        HEAD("2", "9", "0") "\"operations\": []}", NULL};
    char out[4096];
    (void)state;
    assert_int_equal(doctor(dumps, out, sizeof(out)), 1);
    says(out, "ranks 0 and 1 wait for each other in a circle");
    says(out, "recv (1 x float32, from rank 1)");
}

static void doctor_healthy_and_unreadable(void **state)
{
    static const char *const healthy[] = {
        HEAD("0", "1", "1") "\"operations\": [" OP("1", "1", "barrier", "0", "") "]}",
        HEAD("1", "1", "1") "\"operations\": [" OP("1", "1", "barrier", "0", "") "]}",
        HEAD("2", "1", "1") "\"operations\": [" OP("1", "1", "barrier", "0", "") "]}", NULL};
    static const char *const nothing[] = {"",
                                          "{}",
                                          "[1, 2]",
                                          "{\"solccl_dump\": 2}",
                                          "{\"solccl_dump\": 1, \"nranks\": 65, \"rank\": 0}",
                                          "{\"solccl_dump\": 1, \"nranks\": 3, \"rank\": 3}",
                                          NULL};
    char out[4096];
    (void)state;
    assert_int_equal(doctor(healthy, out, sizeof(out)), 0);
    says(out, "nothing is wrong");
    assert_int_equal(doctor(nothing, out, sizeof(out)), 2);
    assert_string_equal(out, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_values),
        cmocka_unit_test(json_broken),
        cmocka_unit_test(doctor_differ),
        cmocka_unit_test(doctor_behind),
        cmocka_unit_test(doctor_seen_in_a_send),
        cmocka_unit_test(doctor_skew),
        cmocka_unit_test(doctor_present_wait),
        cmocka_unit_test(doctor_no_straggler),
        cmocka_unit_test(doctor_pairs),
        cmocka_unit_test(doctor_circle),
        cmocka_unit_test(doctor_healthy_and_unreadable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

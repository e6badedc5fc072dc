/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_env.c: environment variables are read strictly, and launchers told apart.
 */
#include "core/setup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define V "SOLCCL_TEST_VARIABLE"

static void test_int(void **state)
{
    static const char *const bad[] = {"x",    "1x", " 1", "+1",  "1 ",
                                      "0x10", "-6", "11", "1.5", "99999999999999999999"};
    char why[256];
    long value = 3;
    (void)state;
    unsetenv(V);
    assert_int_equal(sol_env_int(V, -5, 10, &value, why, sizeof(why)), SOL_OK);
    setenv(V, "", 1);
    assert_int_equal(sol_env_int(V, -5, 10, &value, why, sizeof(why)), SOL_OK);
    assert_int_equal(value, 3);
    setenv(V, "-5", 1);
    assert_int_equal(sol_env_int(V, -5, 10, &value, why, sizeof(why)), SOL_OK);
    assert_int_equal(value, -5);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setenv(V, bad[i], 1);
        assert_int_equal(sol_env_int(V, -5, 10, &value, why, sizeof(why)), SOL_ERR_ARGUMENT);
        assert_non_null(strstr(why, V));
        assert_non_null(strstr(why, bad[i]));
        assert_non_null(strstr(why, "-5 to 10"));
    }
    assert_int_equal(value, -5);
    unsetenv(V);
}

static void test_size(void **state)
{
    static const char *const bad[] = {"-1", "K", "1KK", "1T", "12Q", "1e3", "99999999999999G", "0"};
    static const struct {
        const char *text;
        size_t value;
    } good[] = {{"1", 1}, {"64K", 65536}, {"2m", 2 << 20}, {"1GiB", 1 << 30}, {"3kb", 3072}};
    char why[256];
    size_t value = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        setenv(V, good[i].text, 1);
        assert_int_equal(sol_env_size(V, 1, SIZE_MAX, &value, why, sizeof(why)), SOL_OK);
        assert_int_equal(value, good[i].value);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setenv(V, bad[i], 1);
        assert_int_equal(sol_env_size(V, 1, SIZE_MAX, &value, why, sizeof(why)), SOL_ERR_ARGUMENT);
        assert_non_null(strstr(why, bad[i]));
    }
    unsetenv(V);
}

static void test_choice(void **state)
{
    static const char *const choices[] = {"auto", "cpu", "cuda", NULL};
    char why[256], tiny[8];
    int value = -1;
    (void)state;
    setenv(V, "cuda", 1);
    assert_int_equal(sol_env_choice(V, choices, &value, why, sizeof(why)), SOL_OK);
    assert_int_equal(value, 2);
    setenv(V, "quantum", 1);
    assert_int_equal(sol_env_choice(V, choices, &value, why, sizeof(why)), SOL_ERR_ARGUMENT);
    assert_non_null(strstr(why, "auto, cpu, cuda"));
    assert_int_equal(sol_env_choice(V, choices, &value, tiny, sizeof(tiny)), SOL_ERR_ARGUMENT);
    assert_int_equal(strlen(tiny), sizeof(tiny) - 1);
    assert_int_equal(value, 2);
    unsetenv(V);
}

/* ------------------------------------------------------------------------ launchers */

static const char *const all_variables[] = {"SOLCCL_RANK",
                                            "SOLCCL_SIZE",
                                            "SOLCCL_JOB",
                                            "RANK",
                                            "WORLD_SIZE",
                                            "LOCAL_WORLD_SIZE",
                                            "MASTER_ADDR",
                                            "MASTER_PORT",
                                            "TORCHELASTIC_RUN_ID",
                                            "TORCHELASTIC_RESTART_COUNT",
                                            "OMPI_COMM_WORLD_RANK",
                                            "OMPI_COMM_WORLD_SIZE",
                                            "OMPI_COMM_WORLD_LOCAL_SIZE",
                                            "PMIX_NAMESPACE",
                                            "PMI_RANK",
                                            "PMI_SIZE",
                                            "PMI_JOBID",
                                            "MPI_LOCALNRANKS",
                                            "SLURM_PROCID",
                                            "SLURM_NTASKS",
                                            "SLURM_STEP_NUM_TASKS",
                                            "SLURM_JOB_ID",
                                            "SLURM_STEP_ID",
                                            "SLURM_NNODES",
                                            NULL};

/* "A=x B=y", and nothing else. */
static void environment(const char *text)
{
    char copy[512], *rest = copy;
    for (int i = 0; all_variables[i] != NULL; i++) {
        unsetenv(all_variables[i]);
    }
    snprintf(copy, sizeof(copy), "%s", text);
    for (char *word; (word = strsep(&rest, " ")) != NULL;) {
        char *value = strchr(word, '=');
        if (value != NULL) {
            *value = '\0';
            setenv(word, value + 1, 1);
        }
    }
}

static sol_launch_t read_good(const char *text, const char *launcher)
{
    sol_launch_t launch;
    bool found = false;
    environment(text);
    sol_status_t status = sol_launch_read(&launch, &found);
    if (status != SOL_OK) {
        print_error("%s: %s\n", text, sol_last_error(NULL));
    }
    assert_int_equal(status, SOL_OK);
    assert_true(found);
    assert_string_equal(launch.launcher, launcher);
    return launch;
}

static void read_bad(const char *text, sol_status_t wanted, const char *word)
{
    sol_launch_t launch;
    bool found;
    environment(text);
    assert_int_equal(sol_launch_read(&launch, &found), wanted);
    if (strstr(sol_last_error(NULL), word) == NULL) {
        fail_msg("%s: \"%s\" does not say \"%s\"", text, sol_last_error(NULL), word);
    }
}

#define TORCH "RANK=1 WORLD_SIZE=4 MASTER_ADDR=localhost MASTER_PORT=29500 "

static void test_launchers(void **state)
{
    sol_launch_t launch;
    bool found = true;
    (void)state;
    environment("");
    assert_int_equal(sol_launch_read(&launch, &found), SOL_OK);
    assert_false(found);
    launch =
        read_good("SOLCCL_RANK=2 SOLCCL_SIZE=3 SOLCCL_JOB=0123456789abcdef " TORCH, "solccl run");
    assert_int_equal(launch.rank, 2);
    assert_int_equal(launch.nranks, 3);
    launch = read_good(TORCH "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", "torchrun");
    assert_int_equal(launch.rank, 1);
    assert_int_equal(launch.nranks, 4);
    read_good("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE=7", "Open MPI");
    read_good("PMI_RANK=0 PMI_SIZE=2 PMI_JOBID=7", "MPICH (Hydra)");
    launch = read_good("SLURM_PROCID=3 SLURM_NTASKS=9 SLURM_STEP_NUM_TASKS=4 SLURM_JOB_ID=1 "
                       "SLURM_STEP_ID=0",
                       "Slurm");
    assert_int_equal(launch.nranks, 4);
    /* a batch script outside srun is one process */
    environment("SLURM_PROCID=0 SLURM_NTASKS=128 SLURM_JOB_ID=1");
    assert_int_equal(sol_launch_read(&launch, &found), SOL_OK);
    assert_false(found);
    /* a lone RANK is somebody else's; another launcher's ranks are not told by half a torchrun */
    environment("RANK=3");
    assert_int_equal(sol_launch_read(&launch, &found), SOL_OK);
    assert_false(found);
    read_good("MASTER_ADDR=a MASTER_PORT=1 WORLD_SIZE=2 PMI_RANK=0 PMI_SIZE=2 PMI_JOBID=7",
              "MPICH (Hydra)");
    environment("");
}

static void test_identity(void **state)
{
    (void)state;
    sol_launch_t a = read_good(TORCH, "torchrun");
    sol_launch_t same =
        read_good("RANK=0 WORLD_SIZE=4 MASTER_ADDR=localhost MASTER_PORT=29500", "torchrun");
    assert_memory_equal(a.identity, same.identity, sizeof(a.identity));
    sol_launch_t restarted = read_good(TORCH "TORCHELASTIC_RESTART_COUNT=1", "torchrun");
    assert_memory_not_equal(a.identity, restarted.identity, sizeof(a.identity));
    /* content cannot slip from one variable into the next */
    sol_launch_t b =
        read_good("RANK=0 WORLD_SIZE=4 MASTER_ADDR=localhost2 MASTER_PORT=9500", "torchrun");
    assert_memory_not_equal(a.identity, b.identity, sizeof(a.identity));
    environment("");
}

static void test_bad_launchers(void **state)
{
    (void)state;
    read_bad("SOLCCL_RANK=0", SOL_ERR_ARGUMENT, "SOLCCL_SIZE");
    read_bad("SOLCCL_RANK=0 SOLCCL_SIZE=2", SOL_ERR_ARGUMENT, "SOLCCL_JOB");
    read_bad("SOLCCL_RANK=0 SOLCCL_SIZE=2 SOLCCL_JOB=short", SOL_ERR_ARGUMENT, "short");
    read_bad("RANK=4 WORLD_SIZE=4", SOL_ERR_ARGUMENT, "0 to 3");
    read_bad("RANK=0 WORLD_SIZE=65", SOL_ERR_ARGUMENT, "WORLD_SIZE is \"65\"");
    read_bad("RANK=0 WORLD_SIZE=", SOL_ERR_ARGUMENT, "WORLD_SIZE");
    read_bad("RANK=0 WORLD_SIZE=4 MASTER_ADDR=a", SOL_ERR_ARGUMENT, "MASTER_PORT");
    read_bad("WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=1", SOL_ERR_ARGUMENT,
             "variable RANK is not set");
    read_bad("RANK=0 MASTER_ADDR=a MASTER_PORT=1", SOL_ERR_ARGUMENT, "WORLD_SIZE is not set");
    read_bad(TORCH "LOCAL_WORLD_SIZE=2", SOL_ERR_UNSUPPORTED, "one host");
    read_bad("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=1 "
             "PMIX_NAMESPACE=1",
             SOL_ERR_UNSUPPORTED, "one host");
    read_bad("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2", SOL_ERR_ARGUMENT, "PMIX_NAMESPACE");
    read_bad("PMI_RANK=0", SOL_ERR_ARGUMENT, "PMI_SIZE");
    read_bad("SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_NTASKS=2", SOL_ERR_ARGUMENT, "SLURM_JOB_ID");
    read_bad("SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_JOB_ID=1 SLURM_NNODES=2",
             SOL_ERR_UNSUPPORTED, "2 nodes");
    environment("");
}

/* Code is not loaded from where everybody can write; /tmp itself is sticky, and fine for own files.
 */
static void test_trusted_paths(void **state)
{
    char directory[] = "/tmp/solccl-test-XXXXXX", file[64], why[512], resolved[SOL_PATH_BYTES];
    (void)state;
    assert_non_null(mkdtemp(directory));
    snprintf(file, sizeof(file), "%s/lib.so", directory);
    assert_false(sol_path_trusted(file, resolved, why, sizeof(why))); /* not there */
    int fd = open(file, O_CREAT | O_RDWR, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_true(sol_path_trusted(file, resolved, why, sizeof(why)));
    assert_string_equal(resolved, file);
    assert_int_equal(chmod(file, 0666), 0);
    assert_false(sol_path_trusted(file, resolved, why, sizeof(why)));
    assert_non_null(strstr(why, "every user"));
    assert_int_equal(chmod(file, 0644), 0);
    assert_int_equal(chmod(directory, 0777), 0);
    assert_false(sol_path_trusted(file, resolved, why, sizeof(why)));
    assert_int_equal(chmod(directory, 01777), 0);
    assert_true(sol_path_trusted(file, resolved, why, sizeof(why)));
    if (geteuid() == 0 && chown(file, 65534, 65534) == 0) { /* a stranger's in a sticky directory */
        assert_false(sol_path_trusted(file, resolved, why, sizeof(why)));
    }
    assert_true(sol_path_trusted("libnccl.so.2", resolved, why, sizeof(why)));
    unlink(file);
    rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_int),          cmocka_unit_test(test_size),
        cmocka_unit_test(test_choice),       cmocka_unit_test(test_launchers),
        cmocka_unit_test(test_identity),     cmocka_unit_test(test_bad_launchers),
        cmocka_unit_test(test_trusted_paths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

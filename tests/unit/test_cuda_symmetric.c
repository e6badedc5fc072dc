/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_symmetric.c: the bookkeeping of GPU ranks' symmetric memory and of
 * multicast, over a driver of our own: its memory is a memfd, its handles and
 * reservations are counted, and any of its calls can be made to fail on any
 * rank. Ranks are threads; the bootstrap is the real one.
 */
#include "backend/cuda/cuda_multicast.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define MOST 8
#define BYTES 300000
#define GRANULARITY 65536
#define RESUME_CALLS 500     /* ... and from here on while memory is resumed */
#define MULTICAST_CALLS 1000 /* the driver's calls are numbered from here on once it is opened */

/* --------------------------------------------------------------------------- the driver */

enum { HANDLES = 256 };

static struct {
    pthread_mutex_t lock;
    struct {
        int fd;
        bool object; /* a multicast object, not memory */
    } handles[HANDLES];
    int live, reserved;
    int multicast_calls, multicast_questions;
    int joined, bound; /* devices of the one multicast object */
    int disorder;      /* calls that a driver would not have allowed */
    bool has_multicast[MOST];
    int fail_rank, fail_call;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local int my_rank, my_calls;

/* Shall this call fail? Every call of the driver asks. */
static bool fails(void)
{
    return my_calls++ == fake.fail_call && my_rank == fake.fail_rank;
}

static CUmemGenericAllocationHandle new_handle(int fd, bool object)
{
    pthread_mutex_lock(&fake.lock);
    int i = 1;
    while (i < HANDLES - 1 && fake.handles[i].fd != 0) {
        i++;
    }
    fake.handles[i].fd = fd;
    fake.handles[i].object = object;
    fake.live++;
    pthread_mutex_unlock(&fake.lock);
    return (CUmemGenericAllocationHandle)i;
}

static void disorder_if(bool wrong)
{
    pthread_mutex_lock(&fake.lock);
    fake.disorder += wrong;
    pthread_mutex_unlock(&fake.lock);
}

static int fd_of(CUmemGenericAllocationHandle handle)
{
    pthread_mutex_lock(&fake.lock);
    int fd = handle < HANDLES ? fake.handles[handle].fd : 0;
    fake.disorder += fd == 0;
    pthread_mutex_unlock(&fake.lock);
    return fd == 0 ? -1 : fd;
}

static CUresult make(CUmemGenericAllocationHandle *handle, size_t bytes, bool object)
{
    int fd = memfd_create("fake", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *handle = new_handle(fd, object);
    return CUDA_SUCCESS;
}

static CUresult device_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    *value = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ||
             attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED ||
             attribute == CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING;
    if (attribute == CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED) {
        pthread_mutex_lock(&fake.lock);
        fake.multicast_questions++;
        pthread_mutex_unlock(&fake.lock);
        *value = fake.has_multicast[device];
    }
    return CUDA_SUCCESS;
}

static CUresult mem_granularity(size_t *bytes, const CUmemAllocationProp *prop,
                                CUmemAllocationGranularity_flags flags)
{
    (void)prop, (void)flags;
    *bytes = GRANULARITY;
    return CUDA_SUCCESS;
}

static CUresult mem_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                           const CUmemAllocationProp *prop, unsigned long long flags)
{
    (void)prop, (void)flags;
    return fails() ? CUDA_ERROR_OUT_OF_MEMORY : make(handle, bytes, false);
}

static CUresult mem_release(CUmemGenericAllocationHandle handle)
{
    int fd = fd_of(handle);
    if (fd >= 0) {
        pthread_mutex_lock(&fake.lock);
        fake.handles[handle].fd = 0;
        fake.live--;
        pthread_mutex_unlock(&fake.lock);
        close(fd);
    }
    return CUDA_SUCCESS;
}

static CUresult mem_export(void *shareable, CUmemGenericAllocationHandle handle,
                           CUmemAllocationHandleType type, unsigned long long flags)
{
    (void)type, (void)flags;
    if (fails()) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int copy = dup(fd_of(handle));
    memcpy(shareable, &copy, sizeof copy);
    return CUDA_SUCCESS;
}

static CUresult mem_import(CUmemGenericAllocationHandle *handle, void *shareable,
                           CUmemAllocationHandleType type)
{
    (void)type;
    if (fails()) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *handle = new_handle(dup((int)(uintptr_t)shareable), false);
    return CUDA_SUCCESS;
}

static CUresult mem_reserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr hint,
                            unsigned long long flags)
{
    (void)alignment, (void)hint, (void)flags;
    if (fails()) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    void *place = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *address = (CUdeviceptr)(uintptr_t)place;
    pthread_mutex_lock(&fake.lock);
    fake.reserved++;
    pthread_mutex_unlock(&fake.lock);
    return place == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult mem_address_free(CUdeviceptr address, size_t bytes)
{
    munmap((void *)(uintptr_t)address, bytes);
    pthread_mutex_lock(&fake.lock);
    fake.reserved--;
    pthread_mutex_unlock(&fake.lock);
    return CUDA_SUCCESS;
}

static CUresult mem_map(CUdeviceptr address, size_t bytes, size_t offset,
                        CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    (void)flags;
    if (fails()) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    void *place = mmap((void *)(uintptr_t)address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
                       fd_of(handle), (off_t)offset);
    return place == MAP_FAILED ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult mem_unmap(CUdeviceptr address, size_t bytes)
{
    void *place = mmap((void *)(uintptr_t)address, bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return place == MAP_FAILED ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult mem_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                               size_t count)
{
    (void)access, (void)count;
    if (fails()) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return mprotect((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE) == 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static const struct sol_cuda_driver driver = {.device_attribute = device_attribute,
                                              .mem_granularity = mem_granularity,
                                              .mem_create = mem_create,
                                              .mem_release = mem_release,
                                              .mem_export = mem_export,
                                              .mem_import = mem_import,
                                              .mem_reserve = mem_reserve,
                                              .mem_address_free = mem_address_free,
                                              .mem_map = mem_map,
                                              .mem_unmap = mem_unmap,
                                              .mem_set_access = mem_set_access};

const char *sol_cuda_driver_error(CUresult error)
{
    return error == CUDA_SUCCESS ? "no error" : "a planted error";
}

/* Legacy IPC needs a runtime: not here. */
cudaError_t sol_cuda_ipc_make(size_t bytes, char **base, unsigned char *handle)
{
    (void)bytes, (void)base, (void)handle;
    disorder_if(true);
    return (cudaError_t)1;
}
cudaError_t sol_cuda_ipc_map(const unsigned char *handle, uint64_t address, bool same_process,
                             char **base)
{
    (void)handle, (void)address, (void)same_process, (void)base;
    disorder_if(true);
    return (cudaError_t)1;
}
void sol_cuda_ipc_unmap(char *base)
{
    (void)base;
}
int sol_cuda_ipc_page_make(void)
{
    return -1;
}
struct sol_cuda_ipc_page *sol_cuda_ipc_page_map(int fd)
{
    (void)fd;
    return NULL;
}
void sol_cuda_ipc_let_go(struct sol_cuda_ipc_page *page, char *own, int nranks)
{
    (void)page, (void)own, (void)nranks;
}

/* ------------------------------------------------------------------- the driver's multicast */

static CUresult counted(void)
{
    pthread_mutex_lock(&fake.lock);
    fake.multicast_calls++;
    pthread_mutex_unlock(&fake.lock);
    return fails() ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

static CUresult multicast_granularity(size_t *bytes, const CUmulticastObjectProp *prop,
                                      CUmulticastGranularity_flags flags)
{
    (void)prop, (void)flags;
    *bytes = 2 * GRANULARITY;
    return counted();
}

static CUresult multicast_create(CUmemGenericAllocationHandle *object,
                                 const CUmulticastObjectProp *prop)
{
    CUresult error = counted();
    disorder_if(prop->size % (2 * GRANULARITY) != 0 || my_rank != 0);
    return error == CUDA_SUCCESS ? make(object, prop->size, true) : error;
}

static CUresult multicast_add_device(CUmemGenericAllocationHandle object, CUdevice device)
{
    CUresult error = counted();
    pthread_mutex_lock(&fake.lock);
    fake.disorder += object == 0 || device != my_rank || fake.bound != 0;
    fake.joined += error == CUDA_SUCCESS;
    pthread_mutex_unlock(&fake.lock);
    return error;
}

static int expected_devices; /* of the communicator: binding before all have joined is an error */

static CUresult multicast_bind(CUmemGenericAllocationHandle object, size_t at,
                               CUmemGenericAllocationHandle memory, size_t memory_at, size_t bytes,
                               unsigned long long flags)
{
    (void)at, (void)memory_at, (void)flags;
    CUresult error = counted();
    pthread_mutex_lock(&fake.lock);
    fake.disorder += object == 0 || memory == 0 || fake.joined != expected_devices ||
                     bytes % (2 * GRANULARITY) != 0;
    fake.bound += error == CUDA_SUCCESS;
    pthread_mutex_unlock(&fake.lock);
    return error;
}

static CUresult multicast_unbind(CUmemGenericAllocationHandle object, CUdevice device, size_t at,
                                 size_t bytes)
{
    (void)object, (void)device, (void)at, (void)bytes;
    pthread_mutex_lock(&fake.lock);
    fake.multicast_calls++;
    fake.bound--;
    pthread_mutex_unlock(&fake.lock);
    return CUDA_SUCCESS;
}

static bool look_up(struct sol_cuda_multicast_calls *calls, char *why, size_t why_bytes)
{
    (void)why, (void)why_bytes;
    pthread_mutex_lock(&fake.lock);
    fake.multicast_calls++; /* a look-up counts too */
    pthread_mutex_unlock(&fake.lock);
    *calls = (struct sol_cuda_multicast_calls){.granularity = multicast_granularity,
                                               .create = multicast_create,
                                               .add_device = multicast_add_device,
                                               .bind = multicast_bind,
                                               .unbind = multicast_unbind};
    return true;
}

/* -------------------------------------------------------------------------------- ranks */

typedef struct {
    pthread_t thread;
    sol_unique_id_t id;
    int rank, nranks, wanted;
    bool multicast; /* open that too */
    int sleeps;     /* suspend and resume it so often */
    int absent;     /* a rank that closes its memory instead, or -1 */
    sol_status_t resumed;
    size_t woken; /* how often it was resumed */
    sol_status_t status, multicast_status;
    bool had_multicast;
    bool right; /* every rank's word was seen in its memory */
    char text[1024], why[160];
} rank_t;

static void look_at_memory(rank_t *me, struct sol_cuda_symmetric *memory, sol_boot_t *boot)
{
    me->right = memory->bytes % GRANULARITY == 0 && memory->bytes >= BYTES;
    for (int r = 0; r < me->nranks; r++) { /* a word of ours into everybody's */
        ((int *)(void *)memory->base[r])[me->rank] = 100 * r + me->rank;
    }
    sol_boot_all_gather(boot, NULL, 0, NULL);
    for (int r = 0; r < me->nranks; r++) {
        for (int from = 0; from < me->nranks; from++) {
            me->right &= ((int *)(void *)memory->base[r])[from] == 100 * r + from;
        }
    }
    sol_boot_all_gather(boot, NULL, 0, NULL);
}

/* Suspended and resumed: every address as before, other memory behind it. */
static void suspend_and_resume(rank_t *me, struct sol_cuda_symmetric *memory,
                               struct sol_cuda_multicast *multicast,
                               const struct sol_cuda_symmetric_config *with)
{
    struct sol_cuda_symmetric before = *memory;
    char *switched = multicast->base;
    bool absent = me->absent == me->rank;
    for (int i = 0; i < me->sleeps && me->right; i++) {
        int found = 0;
        sol_cuda_multicast_suspend(&driver, multicast);
        if (absent) {
            sol_cuda_symmetric_close(&driver, memory);
        } else {
            me->right &= sol_cuda_symmetric_suspend(&driver, memory) == CUDA_SUCCESS;
        }
        sol_boot_all_gather(with->boot, NULL, 0, NULL);
        disorder_if(fake.live != 0); /* all of it is free, everywhere */
        if (me->rank == 0) {
            fake.joined = 0; /* the object is gone, and who joined it */
        }
        sol_boot_all_gather(with->boot, NULL, 0, NULL);
        my_calls = RESUME_CALLS;
        me->resumed = sol_cuda_symmetric_resume(absent ? NULL : memory, with);
        if (me->resumed != SOL_OK || absent) {
            continue; /* it can be tried again */
        }
        me->woken++;
        me->right &= memcmp(before.base, memory->base, sizeof before.base) == 0;
        for (int r = 0; r < me->nranks && me->absent < 0; r++) {
            found += ((int *)(void *)memory->base[r])[me->rank] != 0;
        }
        me->right &= found == 0;
        if (me->absent < 0) {
            look_at_memory(me, memory, with->boot);
        }
        if (me->multicast) {
            me->right &= sol_cuda_multicast_open(multicast, with, memory, 1, look_up, me->why,
                                                 sizeof me->why) == SOL_OK &&
                         multicast->base == switched;
        }
    }
}

static void *rank_body(void *argument)
{
    rank_t *me = argument;
    sol_boot_t *boot = NULL;
    struct sol_cuda_symmetric memory;
    struct sol_cuda_multicast multicast = {.base = NULL};
    sol_boot_config_t config = {.id = &me->id,
                                .nranks = me->nranks,
                                .rank = me->rank,
                                .backend = SOL_BACKEND_CUDA,
                                .timeout_ms = 20000};
    my_rank = me->rank;
    my_calls = 0;
    if (sol_boot_open(&boot, &config) != SOL_OK) {
        me->status = SOL_ERR_SYSTEM;
        return NULL;
    }
    struct sol_cuda_symmetric_config with = {.cu = &driver,
                                             .boot = boot,
                                             .device = me->rank,
                                             .handle = SOL_CUDA_HANDLE_FD,
                                             .rank = me->rank,
                                             .nranks = me->nranks,
                                             .bytes = BYTES};
    me->status = sol_cuda_symmetric_open(&memory, &with);
    if (me->status == SOL_OK) {
        look_at_memory(me, &memory, boot);
        if (me->multicast) {
            my_calls = MULTICAST_CALLS;
            me->multicast_status = sol_cuda_multicast_open(&multicast, &with, &memory, me->wanted,
                                                           look_up, me->why, sizeof me->why);
            me->had_multicast = multicast.base != NULL;
        }
        if (me->sleeps > 0) {
            suspend_and_resume(me, &memory, &multicast, &with);
        }
        if (me->multicast) {
            sol_cuda_multicast_close(&driver, &multicast);
        }
        sol_cuda_symmetric_close(&driver, &memory);
    }
    snprintf(me->text, sizeof me->text, "%s", sol_thread_error_text());
    sol_boot_close(boot);
    return NULL;
}

static rank_t ranks[MOST];

static void prepare(int n)
{
    memset(ranks, 0, sizeof ranks);
    assert_int_equal(sol_get_unique_id(&ranks[0].id), SOL_OK);
    expected_devices = n;
    for (int r = 0; r < n; r++) {
        ranks[r].id = ranks[0].id;
        ranks[r].rank = r;
        ranks[r].nranks = n;
        ranks[r].absent = -1;
    }
}

static int open_files(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory != NULL && readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

/* Runs the ranks; nothing may be left behind. */
static void play(int n)
{
    int files = open_files();
    fake.disorder = fake.joined = fake.bound = 0;
    for (int r = 0; r < n; r++) {
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, rank_body, &ranks[r]), 0);
    }
    for (int r = 0; r < n; r++) {
        pthread_join(ranks[r].thread, NULL);
    }
    assert_int_equal(fake.live, 0);
    assert_int_equal(fake.reserved, 0);
    assert_int_equal(fake.bound, 0);
    assert_int_equal(fake.disorder, 0);
    assert_int_equal(open_files(), files);
}

static int fresh(void **state)
{
    (void)state;
    fake.multicast_calls = fake.multicast_questions = 0;
    fake.fail_rank = -1;
    for (int r = 0; r < MOST; r++) {
        fake.has_multicast[r] = true;
    }
    unsetenv("SOLCCL_CUDA_MULTICAST");
    unsetenv("SOLCCL_CUDA_HANDLE");
    return 0;
}

/* -------------------------------------------------------------------------------- tests */

static void every_rank_sees_every_memory(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 8};
    for (int i = 0; i < 4; i++) {
        prepare(sizes[i]);
        play(sizes[i]);
        for (int r = 0; r < sizes[i]; r++) {
            assert_int_equal(ranks[r].status, SOL_OK);
            assert_true(ranks[r].right);
        }
    }
}

/* Whatever fails on one rank, all fail alike, say why, and leave nothing. */
static void a_failure_is_everybodys(void **state)
{
    (void)state;
    for (int victim = 0; victim < 3; victim++) {
        int failures = 0;
        for (int call = 0; call < 100; call++) {
            prepare(3);
            fake.fail_rank = victim;
            fake.fail_call = call;
            play(3);
            if (ranks[0].status == SOL_OK) {
                break; /* it has no so many calls */
            }
            failures++;
            for (int r = 0; r < 3; r++) {
                assert_int_equal(ranks[r].status, ranks[0].status);
                assert_string_equal(ranks[r].text, ranks[0].text);
                assert_non_null(strstr(ranks[r].text, "planted"));
            }
        }
        assert_true(failures >= 5 + 2 * 4); /* own memory, and two peers' */
    }
}

static void sleepers(int n, int sleeps)
{
    prepare(n);
    for (int r = 0; r < n; r++) {
        ranks[r].sleeps = sleeps;
    }
}

static void memory_comes_back_where_it_was(void **state)
{
    (void)state;
    for (int with_multicast = 0; with_multicast < 2; with_multicast++) {
        for (int n = 1; n <= 4; n++) {
            sleepers(n, 3);
            for (int r = 0; r < n; r++) {
                ranks[r].wanted = with_multicast;
                ranks[r].multicast = with_multicast != 0;
            }
            play(n);
            for (int r = 0; r < n; r++) {
                assert_int_equal(ranks[r].resumed, SOL_OK);
                assert_int_equal(ranks[r].woken, 3);
                assert_int_equal(ranks[r].had_multicast, with_multicast);
                assert_true(ranks[r].right);
            }
        }
    }
}

/* A rank that has given its memory back takes part, and the others get theirs. */
static void one_rank_has_closed_its_memory(void **state)
{
    (void)state;
    for (int absent = 0; absent < 3; absent++) {
        sleepers(3, 1);
        for (int r = 0; r < 3; r++) {
            ranks[r].absent = absent;
        }
        play(3);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(ranks[r].resumed, SOL_OK);
            assert_int_equal(ranks[r].woken, r != absent);
            assert_true(ranks[r].right);
        }
    }
}

/* Whatever of it fails on one rank: all are told, all are suspended still, and can try again. */
static void resuming_fails_half_way(void **state)
{
    (void)state;
    for (int victim = 0; victim < 3; victim++) {
        int failures = 0;
        for (int call = 0; call < 100; call++) {
            sleepers(3, 1);
            fake.fail_rank = victim;
            fake.fail_call = RESUME_CALLS + call;
            play(3);
            if (ranks[0].resumed == SOL_OK) {
                break;
            }
            failures++;
            for (int r = 0; r < 3; r++) {
                assert_int_equal(ranks[r].resumed, ranks[0].resumed);
                assert_int_equal(ranks[r].woken, 0);
                assert_non_null(strstr(ranks[r].text, "planted"));
            }
        }
        assert_true(failures >= 4 + 2 * 3); /* own memory, and two peers'; no address is made */
    }
}

static void handles_are_chosen(void **state)
{
    (void)state;
    char why[160];
    assert_int_equal(sol_cuda_handle_of(&driver, 0, why, sizeof why), SOL_CUDA_HANDLE_FD);
    setenv("SOLCCL_CUDA_HANDLE", "ipc", 1);
    assert_int_equal(sol_cuda_handle_of(&driver, 0, why, sizeof why), SOL_CUDA_HANDLE_IPC);
    setenv("SOLCCL_CUDA_HANDLE", "fabric", 1); /* which the device has not */
    assert_int_equal(sol_cuda_handle_of(&driver, 0, why, sizeof why), SOL_CUDA_HANDLE_NONE);
    assert_non_null(strstr(why, "fabric"));
    setenv("SOLCCL_CUDA_HANDLE", "pigeon", 1);
    assert_int_equal(sol_cuda_handle_of(&driver, 0, why, sizeof why), SOL_CUDA_HANDLE_NONE);
    assert_non_null(strstr(why, "pigeon"));
}

/* Without opt-in the switch is off, and the driver hears nothing of multicast. */
static void multicast_is_off_by_default(void **state)
{
    (void)state;
    char why[160];
    int wanted = 17;
    assert_int_equal(sol_cuda_multicast_wanted(&wanted, why, sizeof why), SOL_OK);
    assert_int_equal(wanted, 0);
    prepare(3);
    for (int r = 0; r < 3; r++) {
        ranks[r].multicast = true;
        ranks[r].wanted = wanted;
    }
    play(3);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(ranks[r].multicast_status, SOL_OK);
        assert_false(ranks[r].had_multicast);
    }
    assert_int_equal(fake.multicast_calls, 0);
    assert_int_equal(fake.multicast_questions, 0);
}

static void multicast_is_asked_for(void **state)
{
    (void)state;
    char why[160];
    int wanted = 0;
    setenv("SOLCCL_CUDA_MULTICAST", "1", 1);
    assert_int_equal(sol_cuda_multicast_wanted(&wanted, why, sizeof why), SOL_OK);
    assert_int_equal(wanted, 1);
    setenv("SOLCCL_CUDA_MULTICAST", "yes", 1);
    assert_int_equal(sol_cuda_multicast_wanted(&wanted, why, sizeof why), SOL_ERR_ARGUMENT);
    assert_non_null(strstr(why, "SOLCCL_CUDA_MULTICAST"));
}

static void want_multicast(int n)
{
    prepare(n);
    for (int r = 0; r < n; r++) {
        ranks[r].multicast = true;
        ranks[r].wanted = 1;
    }
}

static void all_have_multicast_or_none(int n, bool have, const char *word)
{
    for (int r = 0; r < n; r++) {
        assert_int_equal(ranks[r].status, SOL_OK);
        assert_int_equal(ranks[r].multicast_status, SOL_OK);
        assert_int_equal(ranks[r].had_multicast, have);
        assert_non_null(strstr(ranks[r].why, word));
    }
}

static void multicast_with_opt_in(void **state)
{
    (void)state;
    want_multicast(4);
    play(4);
    all_have_multicast_or_none(4, true, "");
    assert_int_equal(fake.joined, 4);
}

static void one_device_without_multicast(void **state)
{
    (void)state;
    want_multicast(3);
    fake.has_multicast[1] = false;
    play(3);
    all_have_multicast_or_none(3, false, "rank 1: its device has no multicast");
}

static void ranks_that_differ_in_their_wish(void **state)
{
    (void)state;
    want_multicast(3);
    ranks[2].wanted = 0;
    play(3);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(ranks[r].multicast_status, SOL_ERR_MISMATCH);
        assert_non_null(strstr(ranks[r].text, "SOLCCL_CUDA_MULTICAST"));
    }
}

/* Whatever of it fails on one rank: none has it, all go on, nothing is left. */
static void multicast_fails_half_way(void **state)
{
    (void)state;
    for (int victim = 0; victim < 3; victim++) {
        int failures = 0;
        for (int call = 0; call < 100; call++) {
            want_multicast(3);
            fake.fail_rank = victim;
            fake.fail_call = MULTICAST_CALLS + call;
            play(3);
            if (ranks[0].had_multicast) {
                break;
            }
            failures++;
            all_have_multicast_or_none(3, false, "planted");
        }
        assert_true(failures >= 6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_rank_sees_every_memory, fresh),
        cmocka_unit_test_setup(a_failure_is_everybodys, fresh),
        cmocka_unit_test_setup(memory_comes_back_where_it_was, fresh),
        cmocka_unit_test_setup(one_rank_has_closed_its_memory, fresh),
        cmocka_unit_test_setup(resuming_fails_half_way, fresh),
        cmocka_unit_test_setup(handles_are_chosen, fresh),
        cmocka_unit_test_setup(multicast_is_off_by_default, fresh),
        cmocka_unit_test_setup(multicast_is_asked_for, fresh),
        cmocka_unit_test_setup(multicast_with_opt_in, fresh),
        cmocka_unit_test_setup(one_device_without_multicast, fresh),
        cmocka_unit_test_setup(ranks_that_differ_in_their_wish, fresh),
        cmocka_unit_test_setup(multicast_fails_half_way, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

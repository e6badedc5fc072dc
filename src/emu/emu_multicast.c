/* SPDX-License-Identifier: Apache-2.0 */
/* emu_multicast.c: ranges of addresses, at which nothing lies, each for several memories. */
#include "emu_device.h"

#include "emu.h"

#include <string.h>

#define RANGES 32

static struct range {
    const char *base;
    size_t bytes; /* 0: free */
    int count;
    char *memory[EMU_MULTICAST_MEMORIES];
} ranges[RANGES];

static struct range *range_of(const void *all)
{
    for (int i = 0; i < RANGES; i++)
        if ((size_t)((const char *)all - ranges[i].base) < ranges[i].bytes)
            return &ranges[i];
    return NULL;
}

bool emu_multicast(const void *base, size_t bytes, char *const *memories, int count)
{
    struct range *r = range_of(base);
    for (int i = 0; !r && i < RANGES; i++)
        if (ranges[i].bytes == 0)
            r = &ranges[i];
    if (!r)
        return false;
    r->base = base;
    r->bytes = bytes;
    r->count = count < EMU_MULTICAST_MEMORIES ? count : EMU_MULTICAST_MEMORIES;
    for (int i = 0; i < r->count; i++)
        r->memory[i] = memories[i];
    return true;
}

void emu_multicast_close(void)
{
    memset(ranges, 0, sizeof(ranges));
}

int emu_multicast_count(const void *all)
{
    const struct range *r = range_of(all);
    return r ? r->count : 0;
}

void *emu_multicast_place(const void *all, int i)
{
    const struct range *r = range_of(all);
    return r->memory[i] + ((const char *)all - r->base);
}

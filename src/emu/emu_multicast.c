/* SPDX-License-Identifier: Apache-2.0 */
/* emu_multicast.c: one range of addresses, at which nothing lies, for several memories. */
#include "emu_device.h"

#include "emu.h"

#include <string.h>

static struct {
    const char *base;
    size_t bytes;
    int count;
    char *memory[EMU_MULTICAST_MEMORIES];
} map;

void emu_multicast(const void *base, size_t bytes, char *const *memories, int count)
{
    map.base = base;
    map.bytes = bytes;
    map.count = count < EMU_MULTICAST_MEMORIES ? count : EMU_MULTICAST_MEMORIES;
    memcpy(map.memory, memories, (size_t)map.count * sizeof(*memories));
}

int emu_multicast_count(const void *all)
{
    size_t at = (size_t)((const char *)all - map.base);
    return at < map.bytes ? map.count : 0;
}

void *emu_multicast_place(const void *all, int i)
{
    return map.memory[i] + ((const char *)all - map.base);
}

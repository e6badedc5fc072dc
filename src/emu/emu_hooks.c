/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_hooks.c: what the compiler calls before each plain load and store of
 * kernel code. The code is compiled with -fsanitize=thread, whose calls are an
 * interface of gcc and clang; here they end in the emulator and not in that
 * sanitizer's own library, which is not linked.
 *
 * Only memory of the arena is of interest; kernel code's own variables, on its
 * stack, are recognised by their address and left alone.
 */
#include "emu/emu_machine.h"

#include <string.h>

#define PC ((uintptr_t)__builtin_return_address(0))
#define HOOK(name, bytes, function)                                                                \
    void name(void *p);                                                                            \
    void name(void *p)                                                                             \
    {                                                                                              \
        if (emu_inside(p))                                                                         \
            function(p, bytes, PC);                                                                \
    }
#define HOOKS(bytes)                                                                               \
    HOOK(__tsan_read##bytes, bytes, emu_weak_read)                                                 \
    HOOK(__tsan_write##bytes, bytes, emu_weak_write)                                               \
    HOOK(__tsan_unaligned_read##bytes, bytes, emu_weak_read)                                       \
    HOOK(__tsan_unaligned_write##bytes, bytes, emu_weak_write)                                     \
    HOOK(__tsan_volatile_read##bytes, bytes, emu_volatile_read)                                    \
    HOOK(__tsan_volatile_write##bytes, bytes, emu_volatile_write)                                  \
    HOOK(__tsan_unaligned_volatile_read##bytes, bytes, emu_volatile_read)                          \
    HOOK(__tsan_unaligned_volatile_write##bytes, bytes, emu_volatile_write)
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOK(__tsan_read16, 16, emu_weak_read)
HOOK(__tsan_write16, 16, emu_weak_write)
HOOK(__tsan_unaligned_read16, 16, emu_weak_read)
HOOK(__tsan_unaligned_write16, 16, emu_weak_write)

void __tsan_read_range(void *p, unsigned long bytes);
void __tsan_read_range(void *p, unsigned long bytes)
{
    if (emu_inside(p))
        emu_weak_read(p, bytes, PC);
}
void __tsan_write_range(void *p, unsigned long bytes);
void __tsan_write_range(void *p, unsigned long bytes)
{
    if (emu_inside(p))
        emu_weak_write(p, bytes, PC);
}
void __tsan_vptr_update(void **p, void *value);
void __tsan_vptr_update(void **p, void *value)
{
    (void)p;
    (void)value;
}
void __tsan_func_entry(void *pc);
void __tsan_func_entry(void *pc)
{
    (void)pc;
}
void __tsan_func_exit(void);
void __tsan_func_exit(void)
{
}
void __tsan_init(void);
void __tsan_init(void)
{
}
/* clang calls these for copies that it does not expand. */
void *__tsan_memcpy(void *to, const void *from, size_t bytes);
void *__tsan_memcpy(void *to, const void *from, size_t bytes)
{
    if (bytes && emu_inside(from))
        emu_weak_read(from, bytes, PC);
    if (bytes && emu_inside(to))
        emu_weak_write(to, bytes, PC);
    return memcpy(to, from, bytes);
}
void *__tsan_memset(void *to, int value, size_t bytes);
void *__tsan_memset(void *to, int value, size_t bytes)
{
    if (bytes && emu_inside(to))
        emu_weak_write(to, bytes, PC);
    return memset(to, value, bytes);
}
void *__tsan_memmove(void *to, const void *from, size_t bytes);
void *__tsan_memmove(void *to, const void *from, size_t bytes)
{
    if (bytes && emu_inside(from))
        emu_weak_read(from, bytes, PC);
    if (bytes && emu_inside(to))
        emu_weak_write(to, bytes, PC);
    return memmove(to, from, bytes);
}

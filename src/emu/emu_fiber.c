/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_fiber.c: stacks for CUDA threads and the switch between them. A switch
 * saves what the calling convention says a function keeps, and nothing else:
 * some nanoseconds, where swapcontext would make two system calls.
 *
 * Must never: be used to leave a stack that holds the address of a thread-local
 * variable; the machine may go on in another thread of the system.
 */
#include "emu/emu_machine.h"

#include <stdlib.h>
#include <sys/mman.h>

#if defined(__x86_64__)

__asm__(".text\n"
        ".globl emu_switch\n"
        ".type emu_switch, @function\n"
        "emu_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size emu_switch, .-emu_switch\n");

void *emu_stack_prepare(void *end, void (*entry)(void))
{
    uintptr_t *top = end;
    *--top = 0; /* an entry has a return address above it, and a stack aligned so */
    *--top = (uintptr_t)entry;
    for (int i = 0; i < 6; i++)
        *--top = 0;
    return top;
}

#elif defined(__aarch64__)

__asm__(".text\n"
        ".globl emu_switch\n"
        ".type emu_switch, %function\n"
        "emu_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size emu_switch, .-emu_switch\n");

void *emu_stack_prepare(void *end, void (*entry)(void))
{
    uintptr_t *top = (uintptr_t *)end - 20;
    for (int i = 0; i < 20; i++)
        top[i] = 0;
    top[11] = (uintptr_t)entry; /* x30 */
    return top;
}

#else
#error "the emulator's switch is written for x86-64 and aarch64"
#endif

/* Stacks are made in blocks and kept. */
#define BLOCK 64
#define CANARY 0x5bd1e995c0ffee11ull

struct block {
    struct block *next;
    char *memory;
};
static struct block *blocks;
static char *free_stacks; /* linked through their first bytes */

static bool more_stacks(void)
{
    struct block *b = malloc(sizeof(*b));
    char *m = mmap(NULL, (size_t)BLOCK * EMU_STACK_BYTES, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!b || m == MAP_FAILED) {
        free(b);
        return false;
    }
    b->memory = m;
    b->next = blocks;
    blocks = b;
    for (int i = 0; i < BLOCK; i++)
        emu_stack_give(m + (size_t)i * EMU_STACK_BYTES);
    return true;
}

/* Ends at different distances from a multiple of EMU_STACK_BYTES: the first lines of all stacks
 * would be of one set of the cache otherwise. */
char *emu_stack_end(char *stack)
{
    return stack + EMU_STACK_BYTES - (uintptr_t)stack / EMU_STACK_BYTES * 320 % 8192;
}

char *emu_stack_take(void)
{
    if (!free_stacks && !more_stacks())
        return NULL;
    char *stack = free_stacks;
    free_stacks = *(char **)(void *)stack;
    *(uint64_t *)(void *)stack = CANARY;
    return stack;
}

void emu_stack_give(char *stack)
{
    *(char **)(void *)stack = free_stacks;
    free_stacks = stack;
}

bool emu_stack_whole(const char *stack)
{
    return *(const uint64_t *)(const void *)stack == CANARY;
}

void emu_stacks_close(void)
{
    while (blocks) {
        struct block *b = blocks;
        blocks = b->next;
        munmap(b->memory, (size_t)BLOCK * EMU_STACK_BYTES);
        free(b);
    }
    free_stacks = NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_jumps.S: the functions that are handed through untouched. Each is one
 * jump through a word. At first the word leads to the binder, which keeps every
 * register an argument can be in, asks sol_nccl_resolve() (nccl_real.c) for the
 * real function, and goes there; afterwards the word is that function. Nothing
 * is known of arguments or results, so a function may have any.
 *
 * Never: touch the stack that the caller's arguments are on.
 */
#if defined(__x86_64__)

#define ARGUMENT_BYTES 136 /* xmm0-7, and 8 to keep the stack aligned */

.macro JUMP name
    .section .data.rel.local, "aw"
    .balign 8
.Lword_\name:
    .quad .Lbind_\name
    .section .rodata.str1.1, "aMS", @progbits, 1
.Lname_\name:
    .asciz "\name"
    .text
    .balign 16
    .globl \name
    .type \name, @function
\name:
    endbr64
    jmp *.Lword_\name(%rip)
.Lbind_\name:
    endbr64
    leaq .Lname_\name(%rip), %r10
    leaq .Lword_\name(%rip), %r11
    jmp sol_nccl_bind
    .size \name, . - \name
.endm

    .text
    .type sol_nccl_bind, @function
sol_nccl_bind:
    .cfi_startproc
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    pushq %rdx
    .cfi_adjust_cfa_offset 8
    pushq %rcx
    .cfi_adjust_cfa_offset 8
    pushq %r8
    .cfi_adjust_cfa_offset 8
    pushq %r9
    .cfi_adjust_cfa_offset 8
    subq $ARGUMENT_BYTES, %rsp
    .cfi_adjust_cfa_offset ARGUMENT_BYTES
    movups %xmm0, (%rsp)
    movups %xmm1, 16(%rsp)
    movups %xmm2, 32(%rsp)
    movups %xmm3, 48(%rsp)
    movups %xmm4, 64(%rsp)
    movups %xmm5, 80(%rsp)
    movups %xmm6, 96(%rsp)
    movups %xmm7, 112(%rsp)
    movq %r10, %rdi
    movq %r11, %rsi
    call sol_nccl_resolve
    movups (%rsp), %xmm0
    movups 16(%rsp), %xmm1
    movups 32(%rsp), %xmm2
    movups 48(%rsp), %xmm3
    movups 64(%rsp), %xmm4
    movups 80(%rsp), %xmm5
    movups 96(%rsp), %xmm6
    movups 112(%rsp), %xmm7
    addq $ARGUMENT_BYTES, %rsp
    .cfi_adjust_cfa_offset -ARGUMENT_BYTES
    popq %r9
    .cfi_adjust_cfa_offset -8
    popq %r8
    .cfi_adjust_cfa_offset -8
    popq %rcx
    .cfi_adjust_cfa_offset -8
    popq %rdx
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    jmp *%rax
    .cfi_endproc
    .size sol_nccl_bind, . - sol_nccl_bind

#elif defined(__aarch64__)

.macro JUMP name
    .section .data.rel.local, "aw"
    .balign 8
.Lword_\name:
    .quad .Lbind_\name
    .section .rodata.str1.1, "aMS", %progbits, 1
.Lname_\name:
    .asciz "\name"
    .text
    .balign 16
    .globl \name
    .type \name, %function
\name:
    hint #34 /* bti c */
    adrp x16, .Lword_\name
    ldr x16, [x16, #:lo12:.Lword_\name]
    br x16
.Lbind_\name:
    hint #36 /* bti j */
    adrp x16, .Lname_\name
    add x16, x16, #:lo12:.Lname_\name
    adrp x17, .Lword_\name
    add x17, x17, #:lo12:.Lword_\name
    b sol_nccl_bind
    .size \name, . - \name
.endm

    .text
    .type sol_nccl_bind, %function
sol_nccl_bind:
    .cfi_startproc
    stp x29, x30, [sp, #-224]!
    .cfi_def_cfa_offset 224
    .cfi_offset x29, -224
    .cfi_offset x30, -216
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    str x8, [sp, #80] /* where a large result goes */
    stp q0, q1, [sp, #96]
    stp q2, q3, [sp, #128]
    stp q4, q5, [sp, #160]
    stp q6, q7, [sp, #192]
    mov x0, x16
    mov x1, x17
    bl sol_nccl_resolve
    mov x16, x0
    ldp q6, q7, [sp, #192]
    ldp q4, q5, [sp, #160]
    ldp q2, q3, [sp, #128]
    ldp q0, q1, [sp, #96]
    ldr x8, [sp, #80]
    ldp x6, x7, [sp, #64]
    ldp x4, x5, [sp, #48]
    ldp x2, x3, [sp, #32]
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #224
    .cfi_def_cfa_offset 0
    br x16
    .cfi_endproc
    .size sol_nccl_bind, . - sol_nccl_bind

#else
#error "the drop-in has jumps for x86-64 and 64-bit Arm only"
#endif

#define NCCL_TAKEN(name)
#define NCCL_PASSED(name) JUMP name
#include "dropin/nccl/nccl_names.h"
#undef NCCL_PASSED
#define NCCL_PASSED(name) JUMP p##name
#include "dropin/nccl/nccl_names.h"

    .section .note.GNU-stack, "", %progbits

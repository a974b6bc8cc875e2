/* The passages for x86-64: thunks before functions of the driver that are not hooked (passage.h).
 *
 * Each stands in the program's call of a function whose parameters it does not know, so it must keep
 * every register that may carry one, and the stack as it is: it leaves by a jump. r11 is the only one
 * it may use. All have one size: passage.c counts on it. */
#if defined(__x86_64__)

#ifdef __CET__
#include <cet.h>
#else
#define _CET_ENDBR
#endif

#include "interpose/resolve/passage.h"

	.hidden	ag_replay_withheld
	.hidden	ag_passage_ways
	.hidden	ag_passage_enter
	.hidden	ag_passage_thunks

	.set	passage_number, 0

	.macro	passage_thunk
	_CET_ENDBR
	movq	ag_passage_ways+8*passage_number(%rip), %r11
	cmpl	$0, ag_replay_withheld(%rip)
	jne	1f
	testq	%r11, %r11
	jz	1f
	jmp	*%r11
1:	movl	$passage_number, %r11d
	jmp	passage_slow
	.p2align 6
	.set	passage_number, passage_number+1
	.endm

	.macro	passage_exported symbol
	.globl	\symbol
	.type	\symbol, @function
\symbol:
	passage_thunk
	.size	\symbol, .-\symbol
	.endm

	.text
	.globl	ag_passage_thunks
	.p2align 6
	.cfi_startproc				/* one description: none of them touches the stack */
ag_passage_thunks:
#define AG_TRAMPOLINE(symbol, kind) passage_exported symbol
#include "interpose/resolve/trampolines.def"
	.type	passage_spare, @function
passage_spare:
	.rept	AG_PASSAGE_SPARES
	passage_thunk
	.endr
	.size	passage_spare, .-passage_spare
	.cfi_endproc

	.type	passage_slow, @function
passage_slow:					/* (r11d: number) */
	.cfi_startproc
	pushq	%rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbp, 0
	movq	%rsp, %rbp
	.cfi_def_cfa_register rbp
	subq	$192, %rsp
	andq	$-16, %rsp
	movq	%rdi, (%rsp)
	movq	%rsi, 8(%rsp)
	movq	%rdx, 16(%rsp)
	movq	%rcx, 24(%rsp)
	movq	%r8, 32(%rsp)
	movq	%r9, 40(%rsp)
	movq	%r10, 48(%rsp)
	movq	%rax, 56(%rsp)			/* al: vector registers of a variadic call */
	movaps	%xmm0, 64(%rsp)
	movaps	%xmm1, 80(%rsp)
	movaps	%xmm2, 96(%rsp)
	movaps	%xmm3, 112(%rsp)
	movaps	%xmm4, 128(%rsp)
	movaps	%xmm5, 144(%rsp)
	movaps	%xmm6, 160(%rsp)
	movaps	%xmm7, 176(%rsp)
	movl	%r11d, %edi
	call	ag_passage_enter
	movq	%rax, %r11
	movq	(%rsp), %rdi
	movq	8(%rsp), %rsi
	movq	16(%rsp), %rdx
	movq	24(%rsp), %rcx
	movq	32(%rsp), %r8
	movq	40(%rsp), %r9
	movq	48(%rsp), %r10
	movq	56(%rsp), %rax
	movaps	64(%rsp), %xmm0
	movaps	80(%rsp), %xmm1
	movaps	96(%rsp), %xmm2
	movaps	112(%rsp), %xmm3
	movaps	128(%rsp), %xmm4
	movaps	144(%rsp), %xmm5
	movaps	160(%rsp), %xmm6
	movaps	176(%rsp), %xmm7
	leave
	.cfi_def_cfa rsp, 8
	.cfi_restore rbp
	jmp	*%r11
	.cfi_endproc
	.size	passage_slow, .-passage_slow

#endif
	.section .note.GNU-stack, "", @progbits

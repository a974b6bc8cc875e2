/* The trampolines for x86-64: thunks before functions of the driver that are not hooked (trampoline.h).
 *
 * Each stands in the program's call of a function whose parameters it does not know, so it must keep
 * every register that may carry one, and the stack as it is: it leaves by a jump. r11 is the only one
 * it may use. All have one size: trampoline.c counts on it. */
#if defined(__x86_64__)

#ifdef __CET__
#include <cet.h>
#else
#define _CET_ENDBR
#endif

#include "interpose/resolve/trampoline.h"

	.hidden	ag_replay_withheld
	.hidden	ag_trampoline_ways
	.hidden	ag_trampoline_enter
	.hidden	ag_trampolines

	.set	trampoline_number, 0

	.macro	trampoline
	_CET_ENDBR
	movq	ag_trampoline_ways+8*trampoline_number(%rip), %r11
	cmpl	$0, ag_replay_withheld(%rip)
	jne	1f
	testq	%r11, %r11
	jz	1f
	jmp	*%r11
1:	movl	$trampoline_number, %r11d
	jmp	trampoline_slow
	.p2align 6
	.set	trampoline_number, trampoline_number+1
	.endm

	.macro	trampoline_exported symbol
	.globl	\symbol
	.type	\symbol, @function
\symbol:
	trampoline
	.size	\symbol, .-\symbol
	.endm

	.text
	.globl	ag_trampolines
	.p2align 6
	.cfi_startproc				/* one description: none of them touches the stack */
ag_trampolines:
#define AG_TRAMPOLINE(symbol, kind) trampoline_exported symbol
#include "interpose/resolve/trampolines.def"
	.type	trampoline_spare, @function
trampoline_spare:
	.rept	AG_TRAMPOLINE_RESERVE
	trampoline
	.endr
	.size	trampoline_spare, .-trampoline_spare
	.cfi_endproc

	.type	trampoline_slow, @function
trampoline_slow:					/* (r11d: number) */
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
	call	ag_trampoline_enter
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
	.size	trampoline_slow, .-trampoline_slow

#endif
	.section .note.GNU-stack, "", @progbits

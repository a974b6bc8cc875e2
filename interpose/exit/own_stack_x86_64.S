/* Calls a function on another stack, for x86-64: see own_stack.c. Calls and returns stay in pairs, so
 * that a shadow stack sees nothing unusual, and a debugger finds its way back. */
#if defined(__x86_64__)

#ifdef __CET__
#include <cet.h>
#else
#define _CET_ENDBR
#endif

	.text
	.globl	ag_own_stack_call
	.hidden	ag_own_stack_call
	.type	ag_own_stack_call, @function
	.p2align 4
ag_own_stack_call:				/* (rdi: function, rsi: argument, rdx: top) */
	.cfi_startproc
	_CET_ENDBR
	pushq	%rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbp, 0
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	movq	%rdx, %rsp
	movq	%rdi, %rax
	movq	%rsi, %rdi
	call	*%rax
	movq	%rbp, %rsp
	.cfi_def_cfa_register %rsp
	popq	%rbp
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbp
	ret
	.cfi_endproc
	.size	ag_own_stack_call, .-ag_own_stack_call

#endif
	.section .note.GNU-stack, "", @progbits

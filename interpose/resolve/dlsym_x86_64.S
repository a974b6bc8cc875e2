/* dlsym for x86-64: a tail jump, whatever the optimisation level, so that the real dlsym sees the
 * program's return address (RTLD_NEXT and RTLD_DEFAULT depend on it). */
#if defined(__x86_64__)

#ifdef __CET__
#include <cet.h>
#else
#define _CET_ENDBR
#endif

	.text
	.globl	dlsym
	.type	dlsym, @function
	.p2align 4
dlsym:						/* (rdi: handle, rsi: name) */
	.cfi_startproc
	_CET_ENDBR
	lock incl ag_loaded_asked(%rip)		/* a library may have come */
	cmpb	$'c', (%rsi)
	jne	.Lpass
	cmpb	$'u', 1(%rsi)
	jne	.Lpass
	movzbl	2(%rsi), %eax
	subl	$'A', %eax
	cmpl	$25, %eax
	ja	.Lpass
	leaq	1(%rdi), %rax			/* RTLD_NEXT is -1, RTLD_DEFAULT 0 */
	cmpq	$1, %rax
	jbe	.Lpseudo
	jmp	ag_resolve_dlsym_cuda
.Lpseudo:
	movq	(%rsp), %rdx			/* who asks */
	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	subq	$8, %rsp
	.cfi_adjust_cfa_offset 8
	call	ag_resolve_dlsym_is_missing
	addq	$8, %rsp
	.cfi_adjust_cfa_offset -8
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	testb	%al, %al
	jz	.Lpass
	xorl	%eax, %eax
	ret
.Lpass:
	movq	ag_real_dlsym_pointer(%rip), %rax
	testq	%rax, %rax
	jz	.Lfind
	jmp	*%rax
.Lfind:
	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	subq	$8, %rsp
	.cfi_adjust_cfa_offset 8
	call	ag_real_dlsym_find
	addq	$8, %rsp
	.cfi_adjust_cfa_offset -8
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	jmp	*%rax
	.cfi_endproc
	.size	dlsym, .-dlsym

#endif
	.section .note.GNU-stack, "", @progbits

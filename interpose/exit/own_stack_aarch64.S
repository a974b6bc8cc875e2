/* Calls a function on another stack, for aarch64: see own_stack.c. Calls and returns stay in pairs, so
 * that a shadow stack sees nothing unusual, and a debugger finds its way back. */
#if defined(__aarch64__)

	.text
	.globl	ag_own_stack_call
	.hidden	ag_own_stack_call
	.type	ag_own_stack_call, %function
	.p2align 4
ag_own_stack_call:				/* (x0: function, x1: argument, x2: top) */
	.cfi_startproc
	hint	#34				/* bti c */
	stp	x29, x30, [sp, #-16]!
	.cfi_adjust_cfa_offset 16
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	mov	x29, sp
	.cfi_def_cfa_register x29
	mov	sp, x2
	mov	x9, x0
	mov	x0, x1
	blr	x9
	mov	sp, x29
	.cfi_def_cfa_register sp
	ldp	x29, x30, [sp], #16
	.cfi_adjust_cfa_offset -16
	.cfi_restore x29
	.cfi_restore x30
	ret
	.cfi_endproc
	.size	ag_own_stack_call, .-ag_own_stack_call

#endif
	.section .note.GNU-stack, "", %progbits

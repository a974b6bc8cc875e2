/* The trampolines for aarch64: thunks before functions of the driver that are not hooked (trampoline.h).
 *
 * Each stands in the program's call of a function whose parameters it does not know, so it must keep
 * every register that may carry one, and the stack as it is: it leaves by a jump. x16 and x17 are the
 * only ones it may use. All have one size: trampoline.c counts on it.
 *
 * Both loads acquire, as those in C do: who finds nothing withheld comes after the thread that has just
 * submitted it, and who finds a way after what made it. */
#if defined(__aarch64__)

#include "interpose/resolve/trampoline.h"

	.hidden	ag_replay_withheld
	.hidden	ag_trampoline_ways
	.hidden	ag_trampoline_enter
	.hidden	ag_trampolines

	.set	trampoline_number, 0

	.macro	trampoline
	hint	#34				/* bti c */
	adrp	x17, ag_replay_withheld
	add	x17, x17, #:lo12:ag_replay_withheld
	ldar	w17, [x17]
	cbnz	w17, 1f
	adrp	x16, ag_trampoline_ways+8*trampoline_number
	add	x16, x16, #:lo12:ag_trampoline_ways+8*trampoline_number
	ldar	x16, [x16]
	cbz	x16, 1f
	br	x16
1:	mov	w16, #trampoline_number
	b	trampoline_slow
	.p2align 6
	.set	trampoline_number, trampoline_number+1
	.endm

	.macro	trampoline_exported symbol
	.globl	\symbol
	.type	\symbol, %function
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
	.type	trampoline_spare, %function
trampoline_spare:
	.rept	AG_TRAMPOLINE_RESERVE
	trampoline
	.endr
	.size	trampoline_spare, .-trampoline_spare
	.cfi_endproc

	.type	trampoline_slow, %function
trampoline_slow:					/* (w16: number) */
	.cfi_startproc
	stp	x29, x30, [sp, #-224]!
	.cfi_adjust_cfa_offset 224
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	mov	x29, sp
	stp	x0, x1, [sp, #16]
	stp	x2, x3, [sp, #32]
	stp	x4, x5, [sp, #48]
	stp	x6, x7, [sp, #64]
	str	x8, [sp, #80]
	stp	q0, q1, [sp, #96]
	stp	q2, q3, [sp, #128]
	stp	q4, q5, [sp, #160]
	stp	q6, q7, [sp, #192]
	mov	w0, w16
	bl	ag_trampoline_enter
	mov	x16, x0
	ldp	x0, x1, [sp, #16]
	ldp	x2, x3, [sp, #32]
	ldp	x4, x5, [sp, #48]
	ldp	x6, x7, [sp, #64]
	ldr	x8, [sp, #80]
	ldp	q0, q1, [sp, #96]
	ldp	q2, q3, [sp, #128]
	ldp	q4, q5, [sp, #160]
	ldp	q6, q7, [sp, #192]
	ldp	x29, x30, [sp], #224
	.cfi_adjust_cfa_offset -224
	.cfi_restore x29
	.cfi_restore x30
	br	x16
	.cfi_endproc
	.size	trampoline_slow, .-trampoline_slow

#endif
	.section .note.GNU-stack, "", %progbits

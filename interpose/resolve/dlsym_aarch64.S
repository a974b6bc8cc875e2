/* dlsym for aarch64: a tail jump, whatever the optimisation level, so that the real dlsym sees the
 * program's return address (RTLD_NEXT and RTLD_DEFAULT depend on it). */
#if defined(__aarch64__)

	.text
	.globl	dlsym
	.type	dlsym, %function
	.p2align 4
dlsym:						/* (x0: handle, x1: name) */
	.cfi_startproc
	hint	#34				/* bti c */
	adrp	x9, ag_loaded_asked		/* a library may have come */
	add	x9, x9, #:lo12:ag_loaded_asked
.Lcount:
	ldaxr	w10, [x9]
	add	w10, w10, #1
	stlxr	w11, w10, [x9]
	cbnz	w11, .Lcount
	ldrb	w9, [x1]
	cmp	w9, #'c'
	b.ne	.Lpass
	ldrb	w9, [x1, #1]
	cmp	w9, #'u'
	b.ne	.Lpass
	ldrb	w9, [x1, #2]
	sub	w9, w9, #'A'
	cmp	w9, #25
	b.hi	.Lpass
	add	x9, x0, #1			/* RTLD_NEXT is -1, RTLD_DEFAULT 0 */
	cmp	x9, #1
	b.ls	.Lpseudo
	b	ag_resolve_dlsym_cuda
.Lpseudo:
	stp	x29, x30, [sp, #-32]!
	.cfi_adjust_cfa_offset 32
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	stp	x0, x1, [sp, #16]
	mov	x2, x30				/* who asks */
	bl	ag_resolve_dlsym_is_missing
	mov	w9, w0
	ldp	x0, x1, [sp, #16]
	ldp	x29, x30, [sp], #32
	.cfi_adjust_cfa_offset -32
	.cfi_restore x29
	.cfi_restore x30
	tbz	w9, #0, .Lpass
	mov	x0, #0
	ret
.Lpass:
	adrp	x9, ag_real_dlsym_pointer
	ldr	x16, [x9, #:lo12:ag_real_dlsym_pointer]
	cbz	x16, .Lfind
	br	x16
.Lfind:
	stp	x29, x30, [sp, #-32]!
	.cfi_adjust_cfa_offset 32
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	stp	x0, x1, [sp, #16]
	bl	ag_real_dlsym_find
	mov	x16, x0
	ldp	x0, x1, [sp, #16]
	ldp	x29, x30, [sp], #32
	.cfi_adjust_cfa_offset -32
	.cfi_restore x29
	.cfi_restore x30
	br	x16
	.cfi_endproc
	.size	dlsym, .-dlsym

#endif
	.section .note.GNU-stack, "", %progbits

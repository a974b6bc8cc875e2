/* The hooks of _exit and exec. */
#ifndef AG_EXIT_HOOKS_H
#define AG_EXIT_HOOKS_H

/* Finds what the hooks of exec end in; called as the library is loaded. */
void ag_exit_hooks_begin(void);

#endif

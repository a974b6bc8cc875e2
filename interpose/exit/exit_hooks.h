/* The hooks of _exit and exec. */
#ifndef AG_EXIT_HOOKS_H
#define AG_EXIT_HOOKS_H

/* As the library is loaded: finds what the hooks of exec end in. */
void ag_exit_hooks_begin(void);

#endif

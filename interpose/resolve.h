/* Which pointer does the program get? The doors dlsym and cuGetProcAddress. */
#ifndef AG_RESOLVE_H
#define AG_RESOLVE_H

/* libc's dlsym, as if called from this library (do not pass RTLD_NEXT or RTLD_DEFAULT for others). */
void *ag_resolve_real_dlsym(void *handle, const char *name);

/* An address in libcuda that the dlsym door has handed out, or NULL if it has seen none. */
const void *ag_resolve_hint(void);

#endif

/* libc's own dlsym, beside the one we export. */
#ifndef AG_REAL_DLSYM_H
#define AG_REAL_DLSYM_H

/* libc's dlsym, as if called from this library: RTLD_NEXT is what comes after us. */
void *ag_real_dlsym(void *handle, const char *name);

#endif

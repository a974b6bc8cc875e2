/* Libraries that use the device, or its memory, where no hook sees it: those of the driver that
 * submit work by tables of its own (OptiX, NVDEC, NVENC), and those by which other devices read
 * and write memory without a call (RDMA).
 *
 * Such a library may be loaded at any time. Whoever uses one has looked something up since, by our
 * dlsym, which counts (base/loaded.h); the next hook that is entered looks at what is loaded. */
#ifndef AG_UNSEEN_H
#define AG_UNSEEN_H

/* If there is one, frees drain from now on, and nothing is replayed or got from a pool any more.
 * Not inside dlsym. */
void ag_unseen_look(void);
/* A forked child looks again: it has the libraries, but nothing was noted there. */
void ag_unseen_begin_child(void);

#endif

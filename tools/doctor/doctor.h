/* doctor.h: the checks that `allograft doctor` runs. Each adds to the findings; none calls
 * doctor.c. */
#ifndef TOOLS_DOCTOR_H
#define TOOLS_DOCTOR_H

#include "tools/doctor/findings.h"

/* doctor_machine.c: the machine, the library and the environment; nothing of CUDA. */
void doctor_machine(struct findings *findings);
/* doctor_driver.c: the driver and its devices. The number of devices; 0 when none can be used. */
int doctor_driver(struct findings *findings);
/* doctor_bus.c: how fast memory is copied between host and device, and what could be gained. */
void doctor_bus(struct findings *findings);
/* Measures that, and prints it for doctor_bus(). An exit status. */
int doctor_bus_work(void);
/* doctor_moves.c: what it takes to move memory between the device and the host. */
void doctor_moves(struct findings *findings);
/* Measures that, and prints it for doctor_moves(). An exit status. */
int doctor_moves_work(void);
/* doctor_test.c: runs a small program natively and under the library, and compares the bytes. */
void doctor_self_test(struct findings *findings);
/* Runs the small program of the self-test: it allocates and frees memory while streams use it. It
 * looks the driver's functions up by `lookup`, see doctor_driver.h. An exit status. */
int doctor_work(const char *lookup);
/* doctor_child.c: runs `allograft doctor --work WORK` in a process of its own, after prepare(with)
 * there, which can refuse, and reads what it prints. False: it was not started, or a signal ended
 * it, as `text` says then. */
bool doctor_run_child(const char *work, bool (*prepare)(const void *with), const void *with,
                      char *text, size_t size);
/* A prepare() for what measures the driver alone, also where the user preloads the library. */
bool doctor_prepare_alone(const void *with);
/* Compares two uint64_t, as qsort() wants it. */
int doctor_compare_times(const void *a, const void *b);

#endif

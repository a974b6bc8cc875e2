/* control.h: what the parts of the control API's test program share. */
#ifndef CONTROL_H
#define CONTROL_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allograft.h"
#include "tests/common/device.h"
#include "tests/common/say.h"

/* Is the library in front of the program's calls? Else it was only opened. */
extern bool intercepted;

/* Ends the program unless `call` returns `status`; says why it did not. */
#define EXPECT_STATUS(status, call) expect_status(status, call, __FILE__, __LINE__, #call)
void expect_status(allograft_status status, allograft_status got, const char *file, int line,
                   const char *call);
CUstream new_stream(void);
/* A number that is hard to foresee, always in the same order. */
uint32_t next_random(void);

void test_managed(void);
void test_counted(void);
void test_advice(size_t pooled);
void test_statistics(const char *folder);
void test_graphs(const char *folder);
void test_private_memory(void);
void test_threads(void);
void test_stages(void);
void test_failing_stages(void);
void test_refused_stages(void);
void test_rings(void);
void test_batches(unsigned batches);
void test_failures(void);

#endif

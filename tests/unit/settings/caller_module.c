/* A library with one function, for caller.c to open under many names. */
#define AGAIN "nop\n nop\n nop\n nop\n nop\n nop\n nop\n nop\n"

void module_function(void);

void module_function(void)
{
    __asm__ volatile(AGAIN);
}

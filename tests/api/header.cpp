/* The same as C++17. */
#include "header.c"

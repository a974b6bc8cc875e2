/* json_library.c: finds the functions of jansson: see json_library.h. */
#ifdef HAVE_JANSSON

#include "tools/report/json_library.h"

#ifndef JANSSON_IS_LINKED
#include <dlfcn.h>
#endif

#undef json_loadb
#undef json_delete
#undef json_object_get
#undef json_array_size
#undef json_array_get
#undef json_string_value
#undef json_integer_value
#undef json_number_value

struct json_library json_library;

#ifdef JANSSON_IS_LINKED

bool json_library_open(void)
{
#define TAKE(name) json_library.name = name;
    JSON_FUNCTIONS(TAKE)
    return true;
}

#else

bool json_library_open(void)
{
    void *library;

    if (json_library.json_loadb)
        return true;
    library = dlopen("libjansson.so.4", RTLD_LAZY);
    if (!library)
        return false;
#define FIND(name) json_library.name = (__typeof__(&name))dlsym(library, #name);
    JSON_FUNCTIONS(FIND)
#define HAS(name)  &&json_library.name
    return true JSON_FUNCTIONS(HAS);
}

#endif

#endif

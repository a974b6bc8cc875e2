/* json_library.h: what is called of jansson, which is linked statically where its static library
 * was there, and else opened when the first JSON is read: the command starts without it. */
#ifndef TOOLS_JSON_LIBRARY_H
#define TOOLS_JSON_LIBRARY_H

#include <jansson.h>
#include <stdbool.h>

#define JSON_FUNCTIONS(F) \
    F(json_loadb)         \
    F(json_delete)        \
    F(json_object_get)    \
    F(json_array_size)    \
    F(json_array_get)     \
    F(json_string_value)  \
    F(json_integer_value) \
    F(json_number_value)

struct json_library {
#define JSON_MEMBER(name) __typeof__(&name) name;
    JSON_FUNCTIONS(JSON_MEMBER)
#undef JSON_MEMBER
};

/* Set by json_library_open(). */
extern struct json_library json_library;

/* False where it is not installed here; nothing of it may be called then. */
bool json_library_open(void);

/* From here on the names mean the library's functions, in jansson's own macros, too. */
#define json_loadb(...)         json_library.json_loadb(__VA_ARGS__)
#define json_delete(...)        json_library.json_delete(__VA_ARGS__)
#define json_object_get(...)    json_library.json_object_get(__VA_ARGS__)
#define json_array_size(...)    json_library.json_array_size(__VA_ARGS__)
#define json_array_get(...)     json_library.json_array_get(__VA_ARGS__)
#define json_string_value(...)  json_library.json_string_value(__VA_ARGS__)
#define json_integer_value(...) json_library.json_integer_value(__VA_ARGS__)
#define json_number_value(...)  json_library.json_number_value(__VA_ARGS__)

#endif

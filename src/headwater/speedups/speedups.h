/* What the C files of `headwater.speedups._native` share: the state of the module, and its functions.
 *
 * Each function does what its twin in Python does, for what is whole and plain. Anything unusual it answers
 * with None, and Python alone says what is wrong: so there is one place for each message, and no C code that
 * is hardly ever run. It reads no byte that it has not compared with the end of what it was given.
 */

#ifndef HEADWATER_SPEEDUPS_H
#define HEADWATER_SPEEDUPS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if PY_BIG_ENDIAN
#error "frames are little-endian"
#endif

/* Of one module object: what its functions need to know of Python's side. */
typedef struct {
    PyObject *plain; /* NULL until `know_event` */
} State;

typedef struct {
    const char *begin;
    Py_ssize_t size;
} Bytes;

/* The number of at most eight bytes at that place: little-endian in files, big-endian in AMQP. */
static inline uint64_t little(const void *at, size_t bytes)
{
    uint64_t found = 0;
    memcpy(&found, at, bytes);
    return found;
}

static inline uint64_t big(const void *at, size_t bytes)
{
    uint64_t found = 0;
    for (const uint8_t *each = at; bytes--; each++)
        found = found << 8 | *each;
    return found;
}

/* Whether a text is ASCII, or as UTF-8 as Python's own decoder demands. */
static inline int is_ascii(const void *text, Py_ssize_t size)
{
    uint64_t bits = 0;
    const char *at = text;
    for (; size >= 8; at += 8, size -= 8)
        bits |= little(at, 8);
    return !((bits | little(at, (size_t)size)) & UINT64_C(0x8080808080808080));
}

static inline int is_utf8(const void *text, Py_ssize_t size)
{
    if (is_ascii(text, size))
        return 1;
    PyObject *decoded = PyUnicode_DecodeUTF8(text, size, NULL);
    Py_XDECREF(decoded);
    return decoded != NULL;
}

/* Arguments that are places or sizes: integers, none below 0. */
static inline int are_sizes(PyObject *const *arguments, int count, Py_ssize_t *found)
{
    for (int each = 0; each < count; each++)
        if ((found[each] = PyLong_AsSsize_t(arguments[each])) < 0)
            return 0;
    return 1;
}

static inline int is_bytes(PyObject *argument, Bytes *found)
{
    if (!PyBytes_Check(argument))
        return 0;
    *found = (Bytes){PyBytes_AS_STRING(argument), PyBytes_GET_SIZE(argument)};
    return 1;
}

/* The answer to what is unusual: the same in Python says what it is, if it is anything. */
static inline PyObject *left_to_python(void)
{
    PyErr_Clear();
    Py_RETURN_NONE;
}

/* The functions of the module; their types are in `_native.pyi`. */
#define UNUSED __attribute__((unused))
#define FUNCTION(name) PyObject *name(UNUSED PyObject *module, PyObject *const *arguments, Py_ssize_t given)
FUNCTION(alike); FUNCTION(know_event); FUNCTION(look_through); FUNCTION(pick); FUNCTION(transfers);
FUNCTION(walk); FUNCTION(write_behind); FUNCTION(writer);

#endif

/* What the C files of `headwater.speedups._native` share: the state of the module, and the table of functions of each file.
 *
 * Each function does what its twin in Python does, for what is whole and plain. Anything unusual it answers with None, and
 * Python alone says what is wrong: so there is one place for each message, and no C code that is hardly ever run. It reads
 * no byte that it has not compared with the end of what it was given.
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
    PyTypeObject *event; /* NULL until `know_event` */
    PyObject *no_attributes, *data;
    PyObject *zero, *no_text, *no_bytes, *no_tags;
} State;

/* The number at that index of an array in a file or a buffer, wherever it begins. */
static inline uint64_t u64_at(const void *array, size_t index)
{
    uint64_t found;
    memcpy(&found, (const char *)array + 8 * index, sizeof found);
    return found;
}

/* Whether a text is ASCII, or as UTF-8 as Python's own decoder demands. */
static inline int is_ascii(const void *text, Py_ssize_t size)
{
    uint64_t bits = 0;
    Py_ssize_t at = 0;
    for (; size - at >= 8; at += 8)
        bits |= u64_at((const char *)text + at, 0);
    for (; at < size; at++)
        bits |= ((const uint8_t *)text)[at];
    return !(bits & UINT64_C(0x8080808080808080));
}

static inline int is_utf8(const void *text, Py_ssize_t size)
{
    if (is_ascii(text, size))
        return 1;
    PyObject *decoded = PyUnicode_DecodeUTF8(text, size, NULL);
    Py_XDECREF(decoded);
    return decoded != NULL;
}

/* One entry of a table of functions. */
#define FUNCTION(name, documentation) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, documentation}
#define END_OF_FUNCTIONS {NULL, NULL, 0, NULL}

extern PyMethodDef frame_functions[], json_functions[], message_functions[], run_functions[];

#endif

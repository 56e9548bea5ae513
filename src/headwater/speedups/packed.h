/* Rows of MessagePack at the end of a bytearray, in the shortest form, as `formats/packed.py` writes them. */

#include "speedups.h"

/* Sizes below `limit` are in the first byte, `fix` with them. `sized` comes before a size of one byte, and
 * those after it before 2, 4 and 8. Arrays have no size of one byte. */
typedef struct {
    uint8_t fix, limit, sized;
} Kind;
static const Kind UNSIGNED = {0, 128, 0xCC}, TEXT = {0xA0, 32, 0xD9}, BINARY = {0, 0, 0xC4},
                  ARRAY = {0x90, 16, 0xDB}, MAP = {0x80, 16, 0xDD};
enum { HEAD_BYTES_MAX = 9, FIELDS = 12 /* of an event */ };

/* The array is longer than what is used of it, until the end. */
typedef struct {
    PyObject *array;
    Py_ssize_t used;
} Rows;

/* Append a number, or the head of what has that size, and the content if there is any. 0 with an
 * exception: no memory. */
static int put(Rows *rows, Kind kind, uint64_t size, const void *content)
{
    Py_ssize_t bytes = content == NULL ? 0 : (Py_ssize_t)size, needed = rows->used + HEAD_BYTES_MAX + bytes;
    if (needed > PyByteArray_GET_SIZE(rows->array) && PyByteArray_Resize(rows->array, 2 * needed))
        return 0;
    char *begin = PyByteArray_AS_STRING(rows->array), *at = begin + rows->used;
    if (size < kind.limit) {
        *at++ = (char)(kind.fix | size);
    } else {
        int is_two = size > UINT8_MAX || kind.sized == ARRAY.sized;
        int width = size > UINT32_MAX ? 3 : size > UINT16_MAX ? 2 : is_two;
        *at++ = (char)(kind.sized + width);
        for (int shift = (8 << width) - 8; shift >= 0; shift -= 8)
            *at++ = (char)(size >> shift);
    }
    if (bytes)
        memcpy(at, content, bytes);
    rows->used = at + bytes - begin;
    return 1;
}

static int put_text(Rows *rows, Bytes text)
{
    return is_utf8(text.begin, text.size) && put(rows, TEXT, (uint64_t)text.size, text.begin);
}

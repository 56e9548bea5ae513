/* One walk of a message of AMQP: where its sections are, and whether every receiver can decode them; the twin
 * is `look_through_any` of `core/message/validity.py`.
 *
 * What is left to Python: all that it refuses, and of what it takes
 *
 * - sections that are described by a number of eight bytes, and more than 16 KiB of them besides the data;
 * - bodies of several sections;
 * - maps of more than 64 keys, and maps in values, as in an amqp-value, with keys that are neither strings
 *   nor symbols;
 * - described values.
 *
 * Values lie in one another at most DEPTH_MAX deep, and so do the calls. All else is loops whose places only
 * grow.
 */

#include "speedups.h"

enum { DEPTH_MAX = 32, KEYS_MAX = 64, ENVELOPE_MAX = 16 * 1024 };
enum {
    HEADER = 0x70, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES, DATA,
    SEQUENCE, VALUE, FOOTER
};

/* Constructors. */
enum {
    DESCRIBED = 0x00, NULL_VALUE = 0x40, LIST0 = 0x45, SMALL_ULONG = 0x53, BOOLEAN_BYTE = 0x56,
    CHAR = 0x73, BINARY8 = 0xA0, LIST8 = 0xC0, MAP8 = 0xC1, ARRAY8 = 0xE0,
    LONG = 0x10 /* the bit of those whose size has four bytes, not one */
};

/* Types that a field may be of: those of a constructor, and those of a field of the header or properties. */
enum { BOOLEAN = 1, UBYTE = 2, UINT = 4, TIMESTAMP = 8, BINARY = 16, STRING = 32, SYMBOL = 64, ID_ALONE = 128,
       ID = STRING | BINARY | ID_ALONE };
static const uint8_t TYPES[256] = {
    [0x41] = BOOLEAN, [0x42] = BOOLEAN, [0x56] = BOOLEAN, [0x50] = UBYTE, [0x43] = UINT, [0x52] = UINT,
    [0x70] = UINT, [0x83] = TIMESTAMP, [0xA0] = BINARY, [0xB0] = BINARY, [0xA1] = STRING, [0xB1] = STRING,
    [0xA3] = SYMBOL, [0xB3] = SYMBOL, [0x44] = ID_ALONE, [0x53] = ID_ALONE, [0x80] = ID_ALONE,
    [0x98] = ID_ALONE,
};
static const uint8_t HEADER_FIELDS[] = {BOOLEAN, UBYTE, UINT, BOOLEAN, UINT};
static const uint8_t PROPERTIES_FIELDS[] = {
    ID, BINARY, STRING, STRING, STRING, ID, SYMBOL, SYMBOL, TIMESTAMP, TIMESTAMP, STRING, UINT, STRING,
};

/* By constructor: how many bytes follow that are a value whatever they are. */
static const uint8_t ANY_BYTES[256] = {
    [0x50] = 1, [0x51] = 1, [0x52] = 1, [0x53] = 1, [0x54] = 1, [0x55] = 1, [0x60] = 2, [0x61] = 2,
    [0x70] = 4, [0x71] = 4, [0x72] = 4, [0x74] = 4, [0x80] = 8, [0x81] = 8, [0x82] = 8, [0x83] = 8,
    [0x84] = 8, [0x94] = 16, [0x98] = 16,
};
/* By section: the constructor of its value, in the form with a size of one byte; any for an amqp-value. */
static const uint8_t SECTIONS[] = {LIST8, MAP8, MAP8, LIST8, MAP8, BINARY8, LIST8, 0, MAP8};

typedef const uint8_t *Place;
typedef struct {
    Place at, end;
} Span;

static Place value(Span rest, int depth);
static Place value_of(uint8_t code, Span rest, int depth);

/* A number, of the width that a constructor says; 0 where it is cut off. */
static int number(uint8_t code, Span *rest, uint32_t *found)
{
    Py_ssize_t width = code & LONG ? 4 : 1;
    if (rest->end - rest->at < width)
        return 0;
    *found = (uint32_t)big(rest->at, (size_t)width);
    rest->at += width;
    return 1;
}

/* What begins with its size; 0 where it is cut off. */
static int sized(uint8_t code, Span rest, Span *found)
{
    uint32_t size;
    if (!number(code, &rest, &size) || (size_t)(rest.end - rest.at) < size)
        return 0;
    *found = (Span){rest.at, rest.at + size};
    return 1;
}

/* Whether a binary, string or symbol may have that content: any, UTF-8, ASCII. */
static int is_text(uint8_t code, Span text)
{
    Py_ssize_t size = text.end - text.at;
    return TYPES[code] == BINARY
           || (TYPES[code] == SYMBOL ? is_ascii(text.at, size) : is_utf8(text.at, size));
}

/* Whether elements of a map go up to its end: with different keys of these types, perhaps simple values. */
static int are_entries(Span rest, uint32_t count, int depth, int key_types, int are_simple)
{
    Span keys[KEYS_MAX];
    if (count & 1 || count > 2 * KEYS_MAX || depth >= DEPTH_MAX)
        return 0;
    for (uint32_t each = 0; each < count >> 1; each++) {
        Span key;
        if (rest.at == rest.end || !(TYPES[*rest.at] & key_types)
            || !sized(*rest.at, (Span){rest.at + 1, rest.end}, &key) || !is_text(*rest.at, key))
            return 0;
        size_t size = key.end - key.at;
        for (uint32_t other = 0; other < each; other++)
            if ((size_t)(keys[other].end - keys[other].at) == size && !memcmp(keys[other].at, key.at, size))
                return 0;
        keys[each] = key;
        rest.at = key.end;
        if (are_simple && rest.at < rest.end && (*rest.at == LIST0 || *rest.at >= LIST8))
            return 0;
        if ((rest.at = value(rest, depth + 1)) == NULL)
            return 0;
    }
    return rest.at == rest.end;
}

/* Whether elements of an array go up to its end, of a type that every client library decodes in one. */
static int are_elements(Span rest, uint32_t count, int depth)
{
    if (depth >= DEPTH_MAX || rest.at == rest.end)
        return 0;
    uint8_t code = *rest.at++;
    if (ANY_BYTES[code])
        return (uint64_t)count * ANY_BYTES[code] == (uint64_t)(rest.end - rest.at)
               && (code < 0x74 || (code & 0x0F) != 4); /* no decimals */
    if (!(TYPES[code] & (BINARY | STRING | SYMBOL)) && code != BOOLEAN_BYTE && (code | LONG) != (MAP8 | LONG))
        return 0;
    for (; count && rest.at != NULL; count--)
        rest.at = value_of(code, rest, depth + 1);
    return rest.at == rest.end;
}

static int are_items(Span rest, uint32_t count, int depth)
{
    if (depth >= DEPTH_MAX)
        return 0;
    for (; count && rest.at != NULL; count--)
        rest.at = value(rest, depth + 1);
    return rest.at == rest.end;
}

/* The place behind the value of that constructor; NULL where there is none that every receiver decodes. */
static Place value_of(uint8_t code, Span rest, int depth)
{
    uint32_t count;
    Span content;
    if (ANY_BYTES[code])
        return rest.end - rest.at < ANY_BYTES[code] ? NULL : rest.at + ANY_BYTES[code];
    if (code >= NULL_VALUE && code <= LIST0)
        return rest.at;
    switch (code) {
    case BOOLEAN_BYTE:
        return rest.at < rest.end && *rest.at <= 1 ? rest.at + 1 : NULL;
    case CHAR:
        if (!number(code, &rest, &count) || count > 0x10FFFF || (count >= 0xD800 && count <= 0xDFFF))
            return NULL;
        return rest.at;
    case 0xA0: case 0xA1: case 0xA3: case 0xB0: case 0xB1: case 0xB3:
        return sized(code, rest, &content) && is_text(code, content) ? content.end : NULL;
    case LIST8: case MAP8: case ARRAY8: case LIST8 | LONG: case MAP8 | LONG: case ARRAY8 | LONG:
        if (!sized(code, rest, &content))
            return NULL;
        rest = content;
        if (!number(code, &rest, &count) || !(code >= ARRAY8 ? are_elements(rest, count, depth)
                                              : code & 1 ? are_entries(rest, count, depth, STRING | SYMBOL, 0)
                                                         : are_items(rest, count, depth)))
            return NULL;
        return content.end;
    }
    return NULL;
}

static Place value(Span rest, int depth)
{
    return rest.at < rest.end ? value_of(*rest.at, (Span){rest.at + 1, rest.end}, depth) : NULL;
}

/* Append how far one place is behind another. */
static int is_noted(PyObject *places, Place begin, Place at)
{
    PyObject *place = places == NULL ? NULL : PyLong_FromSsize_t(at - begin);
    int failed = place == NULL ? places != NULL : PyList_Append(places, place);
    Py_XDECREF(place);
    return !failed;
}

/* Whether fields of a list, each null or of its type, go up to its end; where they begin and end is noted. */
static int are_fields(Span rest, uint32_t count, const uint8_t *types, uint32_t types_count, PyObject *places,
                      Place begin)
{
    if (count > types_count)
        return 0;
    for (; count--; types++) {
        if (rest.at == rest.end || (*rest.at != NULL_VALUE && !(TYPES[*rest.at] & *types)))
            return 0;
        if (!is_noted(places, begin, rest.at) || (rest.at = value(rest, 0)) == NULL)
            return 0;
    }
    return rest.at == rest.end && is_noted(places, begin, rest.at);
}

/* The place behind the value of a section, any but data; NULL where not every receiver decodes it. */
static Place section_end(int section, Span rest, PyObject *places, Place begin)
{
    uint8_t code = *rest.at, usual = SECTIONS[section - HEADER];
    uint32_t count = 0;
    Span content = {rest.at + 1, rest.at + 1};
    int is_fit = 1; /* as delivery annotations are, which no receiver gets */
    if (section == VALUE)
        return value(rest, 0);
    if (code != LIST0 || usual != LIST8) {
        if ((code & ~LONG) != usual || !sized(code, (Span){rest.at + 1, rest.end}, &content)
            || (section != DELIVERY_ANNOTATIONS && !number(code, &content, &count)))
            return NULL;
    }
    if (section == HEADER)
        is_fit = are_fields(content, count, HEADER_FIELDS, sizeof HEADER_FIELDS, NULL, begin);
    else if (section == PROPERTIES)
        is_fit = are_fields(content, count, PROPERTIES_FIELDS, sizeof PROPERTIES_FIELDS, places, begin);
    else if (section == APPLICATION_PROPERTIES)
        is_fit = are_entries(content, count, 0, STRING, 1);
    else if (section == MESSAGE_ANNOTATIONS || section == FOOTER)
        is_fit = are_entries(content, count, 0, SYMBOL, 0);
    else if (section == SEQUENCE)
        is_fit = are_items(content, count, 0);
    return is_fit ? content.end : NULL;
}

static int put(PyObject *spans, int section, Py_ssize_t at, Py_ssize_t stop)
{
    PyObject *key = PyLong_FromLong(section), *span = Py_BuildValue("(nn)", at, stop);
    int failed = key == NULL || span == NULL || PyDict_SetItem(spans, key, span);
    Py_XDECREF(key);
    Py_XDECREF(span);
    return !failed;
}

/* Whether a message of that size is usual and valid; notes its sections and the fields of its properties. */
static int is_walked(Span rest, size_t size, PyObject *spans, PyObject *places)
{
    Place begin = rest.at, data = NULL;
    uint32_t data_bytes = 0;
    int last = 0;
    for (size_t envelope = 0; rest.at < rest.end;) {
        Place start = rest.at;
        if (rest.end - start < 4 || start[0] != DESCRIBED || start[1] != SMALL_ULONG)
            return 0;
        int section = start[2];
        if (section < HEADER || section > FOOTER || section <= last || (section <= VALUE && last >= DATA))
            return 0;
        last = section;
        rest.at += 3;
        if (section == DATA) {
            uint8_t code = *rest.at++;
            if ((code | LONG) != (BINARY8 | LONG) || !number(code, &rest, &data_bytes))
                return 0;
            data = rest.at;
            if ((size_t)(rest.end - rest.at) >= data_bytes)
                rest.at += data_bytes;
            else if (rest.at < rest.end)
                return 0; /* of a message's content all is given, or nothing */
        } else {
            Place end = section_end(section, rest, places, begin);
            int is_body = section == SEQUENCE || section == VALUE;
            if (end == NULL || (envelope += end - start) > ENVELOPE_MAX
                || (!is_body && !put(spans, section, start + 3 - begin, end - begin)))
                return 0;
            rest.at = end;
        }
    }
    if (last == DATA)
        return (size_t)(data - begin) + data_bytes == size
               && put(spans, DATA, data - begin, (Py_ssize_t)size);
    return last && (size_t)(rest.end - begin) == size;
}

/* As `core.message.validity.look_through`; None where that has to be asked. */
FUNCTION(look_through)
{
    Bytes message;
    Py_ssize_t size;
    if (given != 2 || !is_bytes(arguments[0], &message) || !are_sizes(arguments + 1, 1, &size))
        return left_to_python();
    PyObject *spans = PyDict_New(), *places = PyList_New(0), *answer = NULL;
    Span rest = {(Place)message.begin, (Place)message.begin + message.size};
    if (spans != NULL && places != NULL && is_walked(rest, (size_t)size, spans, places))
        answer = PyTuple_Pack(2, spans, places);
    Py_XDECREF(spans);
    Py_XDECREF(places);
    return answer != NULL ? answer : left_to_python();
}

/* Whether JSON may stand inside other JSON: what `formats.embedding` asks of a long text that a decoder has read.
 *
 * It looks at 64 bytes at once, with a bit for each, by instructions that each x86-64 has. Elsewhere Python does it.
 */

#include "speedups.h"

#ifdef __SSE2__
#include <emmintrin.h>

enum { BLOCK = 64 };

/* Of the text so far: whether it ends within a string, and within an escape; how many brackets are open, and may be; how
 * many blocks before this one are part of a number from their begin to their end. */
typedef struct {
    const unsigned char *end;
    uint64_t is_string, is_escaped, is_number;
    Py_ssize_t depth, allowed;
    int full;
} Scan;

typedef enum { PLAIN, DEEP, UNUSUAL } Found;

static uint64_t bits_of(__m128i a, __m128i b, __m128i c, __m128i d)
{
    uint32_t low = (uint32_t)_mm_movemask_epi8(a) | (uint32_t)_mm_movemask_epi8(b) << 16;
    uint32_t high = (uint32_t)_mm_movemask_epi8(c) | (uint32_t)_mm_movemask_epi8(d) << 16;
    return (uint64_t)high << 32 | low;
}

/* The bits of the bytes that are this one; `letters` are four vectors. */
static uint64_t equal(const __m128i *letters, char letter)
{
    __m128i its = _mm_set1_epi8(letter);
    return bits_of(_mm_cmpeq_epi8(letters[0], its), _mm_cmpeq_epi8(letters[1], its), _mm_cmpeq_epi8(letters[2], its),
                   _mm_cmpeq_epi8(letters[3], its));
}

/* The bits of the bytes that a number without exponent is made of. Slashes count as well, which are in strings only. */
static uint64_t numeric(const __m128i *letters)
{
    __m128i is[4];
    for (int each = 0; each < 4; each++) {
        __m128i above = _mm_sub_epi8(letters[each], _mm_set1_epi8('.'));
        is[each] = _mm_cmpeq_epi8(_mm_min_epu8(above, _mm_set1_epi8('9' - '.')), above);
    }
    return bits_of(is[0], is[1], is[2], is[3]);
}

/* The quotation marks that are not escaped; `at` is where the block begins. */
static Found unescaped(Scan *scan, const unsigned char *at, uint64_t slashes, uint64_t *quotes)
{
    if (scan->is_escaped) {
        *quotes &= ~UINT64_C(1);
        slashes &= ~UINT64_C(1);
    }
    scan->is_escaped = 0;
    while (slashes) {
        int place = __builtin_ctzll(slashes);
        const unsigned char *escape = at + place;
        if (scan->end - escape > 2 && escape[1] == 'u' && (escape[2] | 0x20) == 'd')
            return UNUSUAL; /* half a surrogate, or a pair */
        scan->is_escaped = place == BLOCK - 1;
        slashes &= slashes - 1;
        if (place < BLOCK - 1) {
            *quotes &= ~(UINT64_C(2) << place);
            slashes &= ~(UINT64_C(2) << place);
        }
    }
    return PLAIN;
}

/* Whether one of these `e` begins an exponent of three digits or more. */
static int is_large(const Scan *scan, const unsigned char *at, uint64_t exponents)
{
    for (; exponents; exponents &= exponents - 1) {
        const unsigned char *digit = at + __builtin_ctzll(exponents) + 1;
        if (digit < scan->end && (*digit == '+' || *digit == '-'))
            digit++;
        const unsigned char *first = digit;
        while (digit < scan->end && *digit >= '0' && *digit <= '9')
            digit++;
        if (digit - first >= 3)
            return 1;
    }
    return 0;
}

/* Count the brackets of a block: 0 where more are open at once than may be. */
static int counted(Scan *scan, uint64_t opening, uint64_t closing)
{
    Py_ssize_t opened = __builtin_popcountll(opening);
    if (scan->depth + opened > scan->allowed)
        for (uint64_t left = opening | closing; left; left &= left - 1)
            if (left & -left & opening) {
                if (++scan->depth > scan->allowed)
                    return 0;
            } else {
                scan->depth--;
            }
    else
        scan->depth += opened - __builtin_popcountll(closing);
    return 1;
}

/* Look at 64 bytes; `content` has them, and `at` is their place in the text, which may end within them. */
static Found block(Scan *scan, const unsigned char *content, const unsigned char *at)
{
    __m128i letters[4], small[4];
    for (int each = 0; each < 4; each++) {
        letters[each] = _mm_loadu_si128((const __m128i *)content + each);
        small[each] = _mm_or_si128(letters[each], _mm_set1_epi8(0x20));
    }
    uint64_t quotes = equal(letters, '"'), slashes = equal(letters, '\\');
    if ((slashes || scan->is_escaped) && unescaped(scan, at, slashes, &quotes) != PLAIN)
        return UNUSUAL;
    uint64_t string = quotes; /* each bit becomes the parity of those up to it */
    for (int shift = 1; shift < BLOCK; shift *= 2)
        string ^= string << shift;
    string ^= scan->is_string;
    scan->is_string = -(string >> (BLOCK - 1));

    uint64_t number = numeric(letters) & ~string;
    uint64_t exponents = equal(small, 'e') & ~string & (number << 1 | scan->is_number);
    scan->is_number = number >> (BLOCK - 1);
    /* A number of 200 digits fills two blocks in a row. A shorter one, with an exponent of two digits, is below 1e300. */
    scan->full = number == ~UINT64_C(0) ? scan->full + 1 : 0;
    if (scan->full == 2 || is_large(scan, at, exponents))
        return UNUSUAL;
    uint64_t opening = equal(small, '{') & ~string, closing = equal(small, '}') & ~string;
    return !(opening | closing) || counted(scan, opening, closing) ? PLAIN : DEEP;
}

static Found look(const unsigned char *text, Py_ssize_t size, Py_ssize_t allowed)
{
    Scan scan = {.end = text + size, .allowed = allowed};
    Found found = PLAIN;
    for (; found == PLAIN && size >= BLOCK; text += BLOCK, size -= BLOCK)
        found = block(&scan, text, text);
    if (found == PLAIN && size) {
        unsigned char last[BLOCK];
        memset(last, ' ', BLOCK);
        memcpy(last, text, (size_t)size);
        found = block(&scan, last, text);
    }
    return found;
}
#endif

PyDoc_STRVAR(may_stand_doc,
"may_stand(text, depth)\n--\n\n"
"As `embedding.may_stand`, of a text that is JSON; None where that has to be asked.");

static PyObject *may_stand(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (given != 2 || !PyBytes_CheckExact(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "may_stand takes bytes and a depth");
        return NULL;
    }
    Py_ssize_t allowed = PyLong_AsSsize_t(arguments[1]);
    if (allowed == -1 && PyErr_Occurred())
        return NULL;
#ifdef __SSE2__
    Found found = look((const unsigned char *)PyBytes_AS_STRING(arguments[0]), PyBytes_GET_SIZE(arguments[0]), allowed);
    if (found != UNUSUAL)
        return PyBool_FromLong(found == PLAIN);
#endif
    Py_RETURN_NONE;
}

PyMethodDef json_functions[] = {
    FUNCTION(may_stand, may_stand_doc),
    END_OF_FUNCTIONS,
};

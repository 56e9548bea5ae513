/* The events of a frame as objects, or as rows of MessagePack; the twin is `storage/frames/random_access.py`.
 *
 * What is left to Python: rare columns, absent events, places outside of the frame, text that is no UTF-8. */

#include "packed.h"

/* Places in a header (docs/data-file-format.md). */
enum {
    LENGTH = 8, OPTIONAL = 20, COUNT = 24, FIRST = 32, RECORDED_AT = 72, DIRECTORY = 80, HEADER_BYTES = 192
};

enum { GATED = 2 /* of the optional features: every event passed all checks */ };

/* Slots of the directory. Those up to ENCODING, and from GROUP_KEY to ENVELOPE_BYTES, are rare. */
enum {
    ENCODING = 2, ID = 3, SOURCE = 5, SOURCE_BYTES = 6, TYPE = 7, TAG_LISTS = 9, TAG = 10,
    GROUP_KEY = 12, ENVELOPE_BYTES = 20, DATA = 21, SLOTS = 28
};

typedef struct {
    const char *begin;
    uint64_t length, count, optional, first;
    uint64_t following; /* the first number behind those that are looked for in this frame */
    int64_t recorded_at;
    uint32_t slots[SLOTS];
} Frame;

/* Where an event is: its tags are from `low` up to `high` among those of its frame. `size` is what it
 * takes of a budget. */
typedef struct {
    uint64_t number;
    Bytes type, id, data;
    int32_t low, high;
    int64_t size;
} Event;

/* Where events go, and how many: with `each`, the budget bounds all that they have, and so much for each
 * of them. */
typedef struct {
    PyObject *plain; /* an event: others have its fields where they have none of their own */
    PyObject *events;
    Rows rows;
    int64_t budget;
    Py_ssize_t each;
    /* Type and time of the event before: the next one shares the objects, where they are the same. */
    Bytes text;
    int64_t recorded_at;
    PyObject *type, *time;
} Page;

static int is_page(Page *page, PyObject *module, PyObject *into, PyObject *budget)
{
    *page = (Page){.plain = ((State *)PyModule_GetState(module))->plain, .budget = PyLong_AsLongLong(budget)};
    if (PyByteArray_CheckExact(into))
        page->rows = (Rows){into, PyByteArray_GET_SIZE(into)};
    else if (PyList_CheckExact(into))
        page->events = into;
    else
        return 0;
    return page->plain != NULL && !PyErr_Occurred();
}

static void let_go(Page *page, Py_buffer *content)
{
    Py_XDECREF(page->type);
    Py_XDECREF(page->time);
    PyBuffer_Release(content);
}

/* Whether there is a frame at that place, and it has none of the rare columns. */
static int is_opened(Frame *frame, const Py_buffer *content, uint64_t offset)
{
    if (content->len < HEADER_BYTES || offset > (uint64_t)content->len - HEADER_BYTES)
        return 0;
    const char *begin = frame->begin = (const char *)content->buf + offset;
    frame->length = little(begin + LENGTH, 8);
    frame->optional = little(begin + OPTIONAL, 2);
    frame->count = little(begin + COUNT, 4);
    frame->first = little(begin + FIRST, 8);
    frame->recorded_at = (int64_t)little(begin + RECORDED_AT, 8);
    memcpy(frame->slots, begin + DIRECTORY, sizeof frame->slots);
    if (frame->length < HEADER_BYTES || frame->length > (uint64_t)content->len - offset || frame->first >> 62)
        return 0;
    for (int slot = 0; slot <= ENVELOPE_BYTES; slot++)
        if (frame->slots[slot] &&
            (slot <= ENCODING || slot == SOURCE || slot == SOURCE_BYTES || slot >= GROUP_KEY))
            return 0;
    return frame->slots[ID] && frame->slots[TYPE] && frame->slots[DATA];
}

/* The two i32 at that index of the offsets in that slot. */
static int two(const Frame *frame, int slot, uint64_t index, int32_t *low, int32_t *high)
{
    uint64_t at = frame->slots[slot] + 4 * index;
    if (at + 8 > frame->length)
        return 0;
    *low = (int32_t)little(frame->begin + at, 4);
    *high = (int32_t)little(frame->begin + at + 4, 4);
    return 0 <= *low && *low <= *high;
}

/* The value at that index of the offsets in that slot, whose bytes are in the next one. */
static int value(const Frame *frame, int slot, uint64_t index, Bytes *found)
{
    int32_t low, high;
    if (!two(frame, slot, index, &low, &high) || frame->slots[slot + 1] + (uint64_t)high > frame->length)
        return 0;
    *found = (Bytes){frame->begin + frame->slots[slot + 1] + low, high - low};
    return 1;
}

/* Whether the event of that number is there, all of it within the frame, and fits into the budget. */
static int is_found(const Page *page, const Frame *frame, uint64_t number, Event *event)
{
    uint64_t index = number - frame->first;
    *event = (Event){.number = number};
    if (number < frame->first || index >= frame->count || !value(frame, TYPE, index, &event->type) ||
        !value(frame, ID, index, &event->id) || !value(frame, DATA, index, &event->data))
        return 0;
    if (frame->slots[TAG_LISTS] && (!two(frame, TAG_LISTS, index, &event->low, &event->high) ||
                                    frame->slots[TAG] + 4 * (uint64_t)event->high + 4 > frame->length))
        return 0;
    event->size = event->data.size;
    if (!page->each)
        return 1;
    event->size += page->each + event->type.size + event->id.size;
    if (event->high > event->low) {
        const char *bounds = frame->begin + frame->slots[TAG];
        event->size += (int32_t)little(bounds + 4 * (uint64_t)event->high, 4);
        event->size -= (int32_t)little(bounds + 4 * (uint64_t)event->low, 4);
    }
    return event->size <= page->budget;
}

static PyObject *text(Bytes found)
{
    return PyUnicode_DecodeUTF8(found.begin, found.size, NULL);
}

static PyObject *tags_of(const Frame *frame, const Event *event)
{
    Bytes tag;
    PyObject *tags = PyTuple_New(event->high - event->low);
    for (int32_t each = event->low; tags != NULL && each < event->high; each++) {
        PyObject *made = value(frame, TAG, (uint64_t)each, &tag) ? text(tag) : NULL;
        if (made == NULL)
            Py_CLEAR(tags);
        else
            PyTuple_SET_ITEM(tags, each - event->low, made);
    }
    return tags;
}

/* Make the objects of its type and time, unless the event before had the same. */
static int is_shared(Page *page, const Frame *frame, Bytes type)
{
    if (page->type == NULL || type.size != page->text.size ||
        memcmp(type.begin, page->text.begin, type.size)) {
        page->text = type;
        Py_XSETREF(page->type, text(type));
    }
    if (page->type != NULL && (page->time == NULL || page->recorded_at != frame->recorded_at)) {
        page->recorded_at = frame->recorded_at;
        Py_XSETREF(page->time, PyLong_FromLongLong(frame->recorded_at));
    }
    return page->type != NULL && page->time != NULL;
}

/* Append an event as an object; 0, perhaps without an exception, where it is not as it should be. */
static int is_appended(Page *page, const Frame *frame, const Event *event, PyObject *number)
{
    PyTypeObject *class = Py_TYPE(page->plain);
    PyObject *tags = is_shared(page, frame, event->type) ? tags_of(frame, event) : NULL;
    PyObject *id = tags == NULL ? NULL : text(event->id);
    PyObject *data = id == NULL ? NULL : PyBytes_FromStringAndSize(event->data.begin, event->data.size);
    PyObject *made = data == NULL ? NULL : class->tp_alloc(class, FIELDS);
    PyObject *const own[FIELDS] = {number, page->time, NULL, page->type, data, tags, id};
    for (int each = 0; made != NULL && each < FIELDS; each++) {
        PyObject *field = own[each] != NULL ? own[each] : PyTuple_GET_ITEM(page->plain, each);
        PyTuple_SET_ITEM(made, each, Py_NewRef(field));
    }
    int done = made != NULL && !PyList_Append(page->events, made);
    Py_XDECREF(made);
    Py_XDECREF(data);
    Py_XDECREF(id);
    Py_XDECREF(tags);
    return done;
}

/* `is_appended`, as a row. What plain events have not comes last: from the source to the encoding. */
static int is_packed(Rows *rows, const Frame *frame, const Event *event)
{
    Py_ssize_t before = rows->used;
    int done = frame->recorded_at >= 0 && put(rows, ARRAY, FIELDS, NULL) &&
               put(rows, UNSIGNED, event->number, NULL) &&
               put(rows, UNSIGNED, (uint64_t)frame->recorded_at, NULL) && put(rows, UNSIGNED, 0, NULL) &&
               put_text(rows, event->type) &&
               put(rows, BINARY, (uint64_t)event->data.size, event->data.begin) &&
               put(rows, ARRAY, (uint64_t)(event->high - event->low), NULL);
    Bytes tag;
    for (int32_t each = event->low; done && each < event->high; each++)
        done = value(frame, TAG, (uint64_t)each, &tag) && put_text(rows, tag);
    done = done && put_text(rows, event->id) && put(rows, TEXT, 0, NULL) && put(rows, MAP, 0, NULL) &&
           put(rows, TEXT, 0, NULL) && put(rows, BINARY, 0, NULL) && put(rows, UNSIGNED, 0, NULL);
    if (!done)
        rows->used = before;
    return done;
}

/* Add the event of that number; 0 where it is not there, does not fit, or is not as it should be. */
static int is_added(Page *page, const Frame *frame, uint64_t wanted, PyObject *number)
{
    Event event;
    if (!is_found(page, frame, wanted, &event))
        return 0;
    int done = page->events == NULL ? is_packed(&page->rows, frame, &event)
                                    : is_appended(page, frame, &event, number);
    if (done)
        page->budget -= event.size;
    return done;
}

/* As `random_access.pick`; None, with nothing appended, where that has to be asked. */
FUNCTION(pick)
{
    Py_ssize_t offset;
    Py_buffer content;
    Frame frame;
    Page page;
    if (given != 5 || !is_page(&page, module, arguments[3], arguments[4]) || page.events == NULL ||
        !are_sizes(arguments + 1, 1, &offset) || PyObject_GetBuffer(arguments[0], &content, PyBUF_SIMPLE))
        return left_to_python();
    Py_ssize_t had = PyList_GET_SIZE(page.events);
    PyObject *numbers = PyObject_GetIter(arguments[2]), *number;
    int done = numbers != NULL && is_opened(&frame, &content, (uint64_t)offset), is_first = 1;
    for (; done && (is_first || page.budget > 0) && (number = PyIter_Next(numbers)) != NULL; is_first = 0) {
        uint64_t wanted = PyLong_AsUnsignedLongLong(number); /* where it is none, more than any frame has */
        done = is_added(&page, &frame, wanted, number);
        Py_DECREF(number);
    }
    Py_XDECREF(numbers);
    let_go(&page, &content);
    if (done && !PyErr_Occurred())
        return PyLong_FromLongLong(page.budget);
    PyErr_Clear();
    return PyList_SetSlice(page.events, had, PyList_GET_SIZE(page.events), NULL) ? NULL : left_to_python();
}

/* How many of these ascending numbers are not above `wanted`. */
static Py_ssize_t not_above(const Py_buffer *firsts, uint64_t wanted)
{
    Py_ssize_t low = 0, high = firsts->len / 8;
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (little((const char *)firsts->buf + 8 * middle, 8) <= wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Open the frame of that number, if that is below `below` and the frame was verified. `places` are where the
 * frames begin in numbers and in bytes, and which of them were verified.
 *
 * Nothing is allocated meanwhile: that may run other threads, and one of them adds frames to these arrays. */
static int is_entered(Frame *frame, const Py_buffer *content, PyObject *const *places, uint64_t number,
                      uint64_t below)
{
    Py_buffer firsts, offsets;
    uint64_t first = 0, following = below, offset = UINT64_MAX;
    if (number >= below || PyObject_GetBuffer(places[0], &firsts, PyBUF_SIMPLE))
        return 0;
    if (PyObject_GetBuffer(places[1], &offsets, PyBUF_SIMPLE)) {
        PyBuffer_Release(&firsts);
        return 0;
    }
    Py_ssize_t at = not_above(&firsts, number) - 1;
    if (firsts.itemsize == 8 && offsets.itemsize == 8 && at >= 0 && at < offsets.len / 8 &&
        at < PyByteArray_GET_SIZE(places[2]) && PyByteArray_AS_STRING(places[2])[at]) {
        const char *its = (const char *)firsts.buf + 8 * at;
        first = little(its, 8);
        if (at + 1 < firsts.len / 8)
            following = little(its + 8, 8);
        offset = little((const char *)offsets.buf + 8 * at, 8);
    }
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&firsts);
    if (!is_opened(frame, content, offset) || frame->first != first)
        return 0;
    frame->following = following;
    return 1;
}

/* Append the events of these numbers of a segment, from that position on, as long as they are below `below`,
 * plain, in frames that were verified, and within the budget: to a list as objects, to a bytearray as rows
 * of MessagePack. Answers the position behind them, what is left of the budget, and whether all of their
 * frames are gated. With `each`, the budget is a bound for all that the events have, and so much for each of
 * them. None where the arguments are of other types. */
FUNCTION(walk)
{
    Py_ssize_t position, below;
    Py_buffer content;
    Page page;
    if (given != 10 || !PyByteArray_CheckExact(arguments[3]) || !PyList_CheckExact(arguments[4]) ||
        !is_page(&page, module, arguments[7], arguments[8]) || !are_sizes(arguments + 5, 1, &position) ||
        !are_sizes(arguments + 6, 1, &below) || !are_sizes(arguments + 9, 1, &page.each) ||
        PyObject_GetBuffer(arguments[0], &content, PyBUF_SIMPLE))
        return left_to_python();
    Frame frame = {.first = 1}; /* none has this */
    int is_gated = 1;
    for (; position < PyList_GET_SIZE(arguments[4]) && page.budget > 0; position++) {
        PyObject *number = PyList_GET_ITEM(arguments[4], position);
        uint64_t wanted = PyLong_AsUnsignedLongLong(number); /* where it is none, more than any frame has */
        if ((wanted < frame.first || wanted >= frame.following) &&
            !is_entered(&frame, &content, arguments + 1, wanted, (uint64_t)below))
            break;
        if (!is_added(&page, &frame, wanted, number))
            break;
        is_gated &= (frame.optional & GATED) != 0;
    }
    let_go(&page, &content);
    PyErr_Clear(); /* Python goes on where this ends, and says what is wrong there */
    if (page.events == NULL && PyByteArray_Resize(page.rows.array, page.rows.used))
        return NULL;
    return Py_BuildValue("nLO", position, (long long)page.budget, is_gated ? Py_True : Py_False);
}

/* Make events of the class of this one, a tuple of twelve fields, which has what all plain events have. */
FUNCTION(know_event)
{
    if (given != 1 || !PyTuple_Check(arguments[0]) || PyTuple_GET_SIZE(arguments[0]) != FIELDS) {
        PyErr_SetString(PyExc_TypeError, "know_event takes an event");
        return NULL;
    }
    Py_XSETREF(((State *)PyModule_GetState(module))->plain, Py_NewRef(arguments[0]));
    Py_RETURN_NONE;
}

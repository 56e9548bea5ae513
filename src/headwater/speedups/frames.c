/* The events of a frame as objects, or as rows of MessagePack; the twin is `storage/frames/random_access.py`.
 *
 * What is left to Python: rare columns, events that are not there, places outside of the frame, text that is no UTF-8.
 */

#include "packed.h"

/* Places in a header (docs/data-file-format.md). */
enum { LENGTH = 8, OPTIONAL = 20, COUNT = 24, FIRST = 32, RECORDED_AT = 72, DIRECTORY = 80, HEADER_BYTES = 192 };

/* Of the optional features: every event passed all checks. */
enum { GATED = 2 };

/* Slots of the directory. Those up to ENCODING, and from GROUP_KEY to ENVELOPE_BYTES, are rare. */
enum {
    ENCODING = 2, ID = 3, SOURCE = 5, SOURCE_BYTES = 6, TYPE = 7, TAG_LISTS = 9, TAG = 10,
    GROUP_KEY = 12, ENVELOPE_BYTES = 20, DATA = 21, SLOTS = 28
};

/* Fields of an event, in their order. */
enum {
    F_NUMBER, F_RECORDED_AT, F_PARTITION, F_TYPE, F_DATA, F_TAGS, F_ID, F_SOURCE, F_ATTRIBUTES, F_GROUP_KEY,
    F_ENVELOPE, F_ENCODING, FIELDS
};

typedef struct {
    const char *begin;
    uint64_t length;
    uint32_t count;
    uint16_t optional;
    uint64_t first;
    int64_t recorded_at;
    uint32_t slots[SLOTS];
} Frame;

typedef struct {
    const char *begin;
    Py_ssize_t size;
} Bytes;

/* Whether there is a frame at that place, and it has none of the rare columns. */
static int opened(Frame *frame, const Py_buffer *content, Py_ssize_t offset)
{
    if (offset < 0 || offset > content->len || content->len - offset < HEADER_BYTES)
        return 0;
    frame->begin = (const char *)content->buf + offset;
    memcpy(&frame->length, frame->begin + LENGTH, sizeof frame->length);
    memcpy(&frame->optional, frame->begin + OPTIONAL, sizeof frame->optional);
    memcpy(&frame->count, frame->begin + COUNT, sizeof frame->count);
    memcpy(&frame->first, frame->begin + FIRST, sizeof frame->first);
    memcpy(&frame->recorded_at, frame->begin + RECORDED_AT, sizeof frame->recorded_at);
    memcpy(frame->slots, frame->begin + DIRECTORY, sizeof frame->slots);
    if (frame->length < HEADER_BYTES || frame->length > (uint64_t)(content->len - offset) || frame->first >> 62)
        return 0;
    for (int slot = 0; slot <= ENVELOPE_BYTES; slot++)
        if (frame->slots[slot] && (slot <= ENCODING || slot == SOURCE || slot == SOURCE_BYTES || slot >= GROUP_KEY))
            return 0;
    return frame->slots[ID] && frame->slots[TYPE] && frame->slots[DATA];
}

/* The two i32 at that index of the offsets in that slot. */
static int two(const Frame *frame, int slot, uint64_t index, int32_t *low, int32_t *high)
{
    uint64_t at = frame->slots[slot] + 4 * index;
    if (at + 8 > frame->length)
        return 0;
    memcpy(low, frame->begin + at, 4);
    memcpy(high, frame->begin + at + 4, 4);
    return 0 <= *low && *low <= *high;
}

/* The value at that index of the offsets in that slot, whose bytes are in the next one. */
static int value(const Frame *frame, int slot, uint64_t index, Bytes *found)
{
    int32_t low, high;
    if (!two(frame, slot, index, &low, &high) || frame->slots[slot + 1] + (uint64_t)high > frame->length)
        return 0;
    found->begin = frame->begin + frame->slots[slot + 1] + low;
    found->size = high - low;
    return 1;
}

static PyObject *text(const Frame *frame, int slot, uint64_t index)
{
    Bytes found;
    return value(frame, slot, index, &found) ? PyUnicode_DecodeUTF8(found.begin, found.size, NULL) : NULL;
}

/* The places of its tags among all of them. */
static int tagged(const Frame *frame, uint64_t index, int32_t *low, int32_t *high)
{
    *low = *high = 0;
    return !frame->slots[TAG_LISTS] ||
           (two(frame, TAG_LISTS, index, low, high) && frame->slots[TAG] + 4 * (uint64_t)*high + 4 <= frame->length);
}

static PyObject *tags_of(const State *state, const Frame *frame, uint64_t index)
{
    int32_t low, high;
    if (!tagged(frame, index, &low, &high))
        return NULL;
    if (low == high)
        return Py_NewRef(state->no_tags);
    PyObject *tags = PyTuple_New(high - low);
    for (int32_t each = low; tags != NULL && each < high; each++) {
        PyObject *tag = text(frame, TAG, each);
        if (tag == NULL)
            Py_CLEAR(tags);
        else
            PyTuple_SET_ITEM(tags, each - low, tag);
    }
    return tags;
}

/* What an event shares with the one before: the object of its type, where that is the same text, and of its time. */
typedef struct {
    Bytes text;
    PyObject *type, *recorded_at;
} Shared;

static void let_go(Shared *shared)
{
    Py_XDECREF(shared->type);
    Py_XDECREF(shared->recorded_at);
}

static int typed(Shared *shared, const Frame *frame, uint64_t index)
{
    Bytes found;
    if (!value(frame, TYPE, index, &found))
        return 0;
    if (shared->type != NULL && found.size == shared->text.size && !memcmp(found.begin, shared->text.begin, found.size))
        return 1;
    shared->text = found;
    Py_XSETREF(shared->type, PyUnicode_DecodeUTF8(found.begin, found.size, NULL));
    return shared->type != NULL;
}

static int timed(Shared *shared, const Frame *frame)
{
    Py_XSETREF(shared->recorded_at, PyLong_FromLongLong(frame->recorded_at));
    return shared->recorded_at != NULL;
}

/* One event; NULL, perhaps without an exception, where it is not as it should be. */
static PyObject *event_of(const State *state, const Frame *frame, uint64_t index, const Bytes *payload, PyObject *number,
                          const Shared *shared)
{
    PyObject *tags = tags_of(state, frame, index);
    PyObject *id = tags == NULL ? NULL : text(frame, ID, index);
    PyObject *data = id == NULL ? NULL : PyBytes_FromStringAndSize(payload->begin, payload->size);
    PyObject *event = data == NULL ? NULL : state->event->tp_alloc(state->event, FIELDS);
    if (event == NULL) {
        Py_XDECREF(tags);
        Py_XDECREF(id);
        Py_XDECREF(data);
        return NULL;
    }
    PyTuple_SET_ITEM(event, F_NUMBER, Py_NewRef(number));
    PyTuple_SET_ITEM(event, F_RECORDED_AT, Py_NewRef(shared->recorded_at));
    PyTuple_SET_ITEM(event, F_PARTITION, Py_NewRef(state->zero));
    PyTuple_SET_ITEM(event, F_TYPE, Py_NewRef(shared->type));
    PyTuple_SET_ITEM(event, F_DATA, data);
    PyTuple_SET_ITEM(event, F_TAGS, tags);
    PyTuple_SET_ITEM(event, F_ID, id);
    PyTuple_SET_ITEM(event, F_SOURCE, Py_NewRef(state->no_text));
    PyTuple_SET_ITEM(event, F_ATTRIBUTES, Py_NewRef(state->no_attributes));
    PyTuple_SET_ITEM(event, F_GROUP_KEY, Py_NewRef(state->no_text));
    PyTuple_SET_ITEM(event, F_ENVELOPE, Py_NewRef(state->no_bytes));
    PyTuple_SET_ITEM(event, F_ENCODING, Py_NewRef(state->data));
    return event;
}

/* What is left of a budget. With `each`, that is a bound for all that events have, and so much for each of them. */
typedef struct {
    int64_t bytes;
    Py_ssize_t each;
} Budget;

/* What an event takes of the budget: 0 where it does not fit, or is not as it should be. */
static int costs(const Frame *frame, uint64_t index, const Bytes *payload, const Budget *budget, int64_t *size)
{
    Bytes type, id;
    int32_t low, high, from, to;
    *size = payload->size;
    if (!budget->each)
        return 1;
    if (!value(frame, TYPE, index, &type) || !value(frame, ID, index, &id) || !tagged(frame, index, &low, &high))
        return 0;
    *size += budget->each + type.size + id.size;
    if (high > low) {
        memcpy(&from, frame->begin + frame->slots[TAG] + 4 * (uint64_t)low, 4);
        memcpy(&to, frame->begin + frame->slots[TAG] + 4 * (uint64_t)high, 4);
        *size += to - from;
    }
    return *size <= budget->bytes;
}

/* Append the event of that number: 1 once that is done, 0 where it is not there, does not fit, or not as it should be.
 */
static int appended(const State *state, const Frame *frame, uint64_t wanted, PyObject *number, Shared *shared,
                    PyObject *events, Budget *budget)
{
    uint64_t index = wanted - frame->first;
    int64_t size;
    Bytes payload;
    if (wanted < frame->first || index >= frame->count || !value(frame, DATA, index, &payload) ||
        !costs(frame, index, &payload, budget, &size) || !typed(shared, frame, index))
        return 0;
    PyObject *event = event_of(state, frame, index, &payload, number, shared);
    int done = event != NULL && !PyList_Append(events, event);
    Py_XDECREF(event);
    if (done)
        budget->bytes -= size;
    return done;
}

static int put_text(Rows *rows, const Frame *frame, int slot, uint64_t index)
{
    Bytes found;
    return value(frame, slot, index, &found) && is_utf8(found.begin, found.size) &&
           put(rows, TEXT, (uint64_t)found.size, found.begin);
}

/* `appended`, as a row. What most events have not comes last: source, attributes, group key, envelope, encoding. */
static int packed(const Frame *frame, uint64_t wanted, Rows *rows, Budget *budget)
{
    uint64_t index = wanted - frame->first;
    Py_ssize_t before = rows->used;
    int32_t low, high;
    int64_t size;
    Bytes payload;
    int done = wanted >= frame->first && index < frame->count && frame->recorded_at >= 0 &&
               value(frame, DATA, index, &payload) && costs(frame, index, &payload, budget, &size) && tagged(frame, index, &low, &high) &&
               put(rows, ARRAY, FIELDS, NULL) && put(rows, UNSIGNED, wanted, NULL) &&
               put(rows, UNSIGNED, (uint64_t)frame->recorded_at, NULL) && put(rows, UNSIGNED, 0, NULL) &&
               put_text(rows, frame, TYPE, index) && put(rows, BINARY, (uint64_t)payload.size, payload.begin) &&
               put(rows, ARRAY, (uint64_t)(high - low), NULL);
    for (int32_t each = low; done && each < high; each++)
        done = put_text(rows, frame, TAG, each);
    done = done && put_text(rows, frame, ID, index) && put(rows, TEXT, 0, NULL) && put(rows, MAP, 0, NULL) &&
           put(rows, TEXT, 0, NULL) && put(rows, BINARY, 0, NULL) && put(rows, UNSIGNED, 0, NULL);
    if (done)
        budget->bytes -= size;
    else
        rows->used = before;
    return done;
}

/* Append the events of these numbers of one frame: 1 once that is done, 0 where they are not as they should be. */
static int picked(const State *state, const Frame *frame, PyObject *numbers, PyObject *events, Budget *budget)
{
    Shared shared = {{NULL, 0}, NULL, NULL};
    PyObject *number;
    int done = timed(&shared, frame), is_first = 1;
    for (; done && (is_first || budget->bytes > 0) && (number = PyIter_Next(numbers)) != NULL; is_first = 0) {
        uint64_t wanted = PyLong_AsUnsignedLongLong(number);
        done = wanted != (uint64_t)-1 && appended(state, frame, wanted, number, &shared, events, budget);
        Py_DECREF(number);
    }
    let_go(&shared);
    return done && !PyErr_Occurred();
}

PyDoc_STRVAR(pick_doc,
"pick(content, offset, numbers, events, budget)\n--\n\n"
"As `random_access.pick`; None, with nothing appended, where that has to be asked.");

static PyObject *pick(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    const State *state = PyModule_GetState(module);
    Py_buffer content;
    Frame frame;
    int done = 0;
    if (given != 5 || !PyList_CheckExact(arguments[3]) || state->event == NULL) {
        PyErr_SetString(PyExc_TypeError,
                        "pick takes content, an offset, numbers, a list of events, and a budget; know_event comes first");
        return NULL;
    }
    Py_ssize_t offset = PyLong_AsSsize_t(arguments[1]);
    Budget budget = {PyLong_AsLongLong(arguments[4]), 0};
    if (PyErr_Occurred())
        return NULL;
    PyObject *numbers = PyObject_GetIter(arguments[2]), *events = arguments[3];
    if (numbers == NULL)
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &content, PyBUF_SIMPLE)) {
        Py_DECREF(numbers);
        return NULL;
    }
    Py_ssize_t had = PyList_GET_SIZE(events);
    if (opened(&frame, &content, offset))
        done = picked(state, &frame, numbers, events, &budget);
    PyBuffer_Release(&content);
    Py_DECREF(numbers);
    if (done)
        return PyLong_FromLongLong(budget.bytes);
    PyErr_Clear(); /* the same in Python says what it is, if it is anything */
    if (PyList_SetSlice(events, had, PyList_GET_SIZE(events), NULL))
        return NULL;
    Py_RETURN_NONE;
}

/* So many numbers at most are located at once. */
enum { TOGETHER = 64 };

typedef struct {
    uint64_t number, first, offset;
} Place;

/* How many of these ascending numbers are not above `wanted`. */
static Py_ssize_t not_above(const Py_buffer *firsts, uint64_t wanted)
{
    Py_ssize_t low = 0, high = firsts->shape[0];
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (u64_at(firsts->buf, middle) <= wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Where the frames of these numbers are, as far as those are below `below` and in frames that were verified.
 *
 * Nothing is allocated meanwhile: that may run other threads, and one of them adds frames to these very arrays.
 */
static Py_ssize_t located(const Py_buffer *firsts, const Py_buffer *offsets, PyObject *verified, uint64_t below, Place *places,
                          Py_ssize_t count)
{
    uint64_t first = 1, following = 0, offset = 0;
    for (Py_ssize_t each = 0; each < count; each++) {
        uint64_t number = places[each].number;
        if (number < first || number >= following) { /* not in the frame of the one before */
            Py_ssize_t at = not_above(firsts, number) - 1;
            if (number >= below || at < 0 || at >= offsets->shape[0] || at >= PyByteArray_GET_SIZE(verified) ||
                !PyByteArray_AS_STRING(verified)[at])
                return each;
            first = u64_at(firsts->buf, at);
            offset = u64_at(offsets->buf, at);
            following = at + 1 < firsts->shape[0] ? u64_at(firsts->buf, at + 1) : below;
        }
        places[each].first = first;
        places[each].offset = offset;
    }
    return count;
}

/* The next places of a walk; how many of them there are, -1 with an exception. */
static Py_ssize_t next_places(PyObject *const *arguments, Py_ssize_t position, uint64_t below, Place *places)
{
    Py_buffer firsts, offsets;
    Py_ssize_t count = 0, left = PyList_GET_SIZE(arguments[4]) - position;
    for (; count < left && count < TOGETHER; count++) {
        places[count].number = PyLong_AsUnsignedLongLong(PyList_GET_ITEM(arguments[4], position + count));
        if (places[count].number == (uint64_t)-1)
            break;
    }
    PyErr_Clear(); /* of a number that no frame has */
    if (PyObject_GetBuffer(arguments[1], &firsts, PyBUF_ND))
        return -1;
    if (PyObject_GetBuffer(arguments[2], &offsets, PyBUF_ND)) {
        PyBuffer_Release(&firsts);
        return -1;
    }
    if (firsts.ndim != 1 || firsts.itemsize != 8 || offsets.ndim != 1 || offsets.itemsize != 8)
        count = 0;
    count = located(&firsts, &offsets, arguments[3], below, places, count);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&firsts);
    return count;
}

PyDoc_STRVAR(walk_doc,
"walk(content, firsts, offsets, verified, numbers, position, below, events, budget, each)\n--\n\n"
"Append the events of these numbers of a segment, from that position on, as long as they are below `below`, plain, in\n"
"frames that were verified, and within the budget: to a list as objects, to a bytearray as rows of MessagePack. Answers\n"
"the position behind them, what is left of the budget, and whether all of their frames are gated. With `each`, the\n"
"budget is a bound for all that the events have, and so much for each of them.");

static PyObject *walk(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    const State *state = PyModule_GetState(module);
    if (given != 10 || !PyByteArray_CheckExact(arguments[3]) || !PyList_CheckExact(arguments[4]) ||
        !(PyList_CheckExact(arguments[7]) || PyByteArray_CheckExact(arguments[7])) || state->event == NULL) {
        PyErr_SetString(PyExc_TypeError, "walk takes a segment's content and frames, numbers, and events or rows");
        return NULL;
    }
    Py_ssize_t position = PyLong_AsSsize_t(arguments[5]), count = TOGETHER;
    uint64_t below = PyLong_AsUnsignedLongLong(arguments[6]);
    Budget budget = {PyLong_AsLongLong(arguments[8]), PyLong_AsSsize_t(arguments[9])};
    Py_buffer content;
    if (PyErr_Occurred() || PyObject_GetBuffer(arguments[0], &content, PyBUF_SIMPLE))
        return NULL;
    Shared shared = {{NULL, 0}, NULL, NULL};
    Rows rows = {NULL, 0};
    if (PyByteArray_CheckExact(arguments[7]))
        rows = (Rows){arguments[7], PyByteArray_GET_SIZE(arguments[7])};
    Place places[TOGETHER];
    Frame frame = {.begin = NULL};
    int is_gated = 1, is_plain = position >= 0;
    while (is_plain && count == TOGETHER && budget.bytes > 0) {
        count = next_places(arguments, position, below, places);
        for (Py_ssize_t each = 0; each < count && is_plain && budget.bytes > 0; each++) {
            uint64_t offset = places[each].offset;
            if (frame.begin == NULL || frame.begin != (const char *)content.buf + offset) {
                is_plain = offset <= PY_SSIZE_T_MAX && opened(&frame, &content, (Py_ssize_t)offset) &&
                           frame.first == places[each].first && (rows.array != NULL || timed(&shared, &frame));
                if (!is_plain)
                    break;
            }
            if (rows.array != NULL)
                is_plain = packed(&frame, places[each].number, &rows, &budget);
            else
                is_plain = appended(state, &frame, places[each].number, PyList_GET_ITEM(arguments[4], position), &shared,
                                    arguments[7], &budget);
            if (is_plain) {
                is_gated &= (frame.optional & GATED) != 0;
                position++;
            }
        }
    }
    let_go(&shared);
    PyBuffer_Release(&content);
    if (count < 0)
        return NULL;
    PyErr_Clear(); /* Python goes on where this ends, and says what is wrong there */
    if (!fitted(&rows))
        return NULL;
    return Py_BuildValue("nLO", position, (long long)budget.bytes, is_gated ? Py_True : Py_False);
}

PyDoc_STRVAR(know_event_doc,
"know_event(event, no_attributes, data)\n--\n\n"
"Make events of that class, a tuple of twelve fields; with these as attributes and encoding of plain ones.");

static PyObject *know_event(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    State *state = PyModule_GetState(module);
    if (given != 3 || !PyType_Check(arguments[0]) || !PyType_IsSubtype((PyTypeObject *)arguments[0], &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "know_event takes a class of tuples, no attributes, and an encoding");
        return NULL;
    }
    Py_XSETREF(state->event, (PyTypeObject *)Py_NewRef(arguments[0]));
    Py_XSETREF(state->no_attributes, Py_NewRef(arguments[1]));
    Py_XSETREF(state->data, Py_NewRef(arguments[2]));
    Py_RETURN_NONE;
}

PyMethodDef frame_functions[] = {
    FUNCTION(know_event, know_event_doc),
    FUNCTION(pick, pick_doc),
    FUNCTION(walk, walk_doc),
    END_OF_FUNCTIONS,
};

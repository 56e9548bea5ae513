/* The events of a frame as objects; the twin is `storage/frames/random_access.py`.
 *
 * What is left to Python: rare columns, events that are not there, places outside of the frame, text that is no UTF-8.
 */

#include "speedups.h"

/* Places in a header (docs/data-file-format.md). */
enum { LENGTH = 8, COUNT = 24, FIRST = 32, RECORDED_AT = 72, DIRECTORY = 80, HEADER_BYTES = 192 };

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

static PyObject *tags_of(const State *state, const Frame *frame, uint64_t index)
{
    int32_t low, high;
    if (!frame->slots[TAG_LISTS])
        return Py_NewRef(state->no_tags);
    if (!two(frame, TAG_LISTS, index, &low, &high) || frame->slots[TAG] + 4 * (uint64_t)high + 4 > frame->length)
        return NULL;
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

/* The type of an event, which is the same object as that of the one before where it is the same text. */
static PyObject *type_of(const Frame *frame, uint64_t index, Bytes *before, PyObject *its)
{
    Bytes found;
    if (!value(frame, TYPE, index, &found))
        return NULL;
    if (its != NULL && found.size == before->size && !memcmp(found.begin, before->begin, found.size))
        return Py_NewRef(its);
    *before = found;
    return PyUnicode_DecodeUTF8(found.begin, found.size, NULL);
}

/* One event; NULL, perhaps without an exception, where it is not as it should be. */
static PyObject *event_of(const State *state, const Frame *frame, uint64_t index, const Bytes *payload,
                          PyObject *number, PyObject *recorded_at, PyObject *type)
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
    PyTuple_SET_ITEM(event, F_RECORDED_AT, Py_NewRef(recorded_at));
    PyTuple_SET_ITEM(event, F_PARTITION, Py_NewRef(state->zero));
    PyTuple_SET_ITEM(event, F_TYPE, Py_NewRef(type));
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

/* Append the events of these numbers: 1 once that is done, 0 where they are not as they should be. */
static int picked(const State *state, const Frame *frame, PyObject *numbers, PyObject *events, int64_t *budget)
{
    PyObject *recorded_at = PyLong_FromLongLong(frame->recorded_at), *type = NULL, *number;
    Bytes before = {NULL, 0};
    int done = recorded_at != NULL, is_first = 1;
    for (; done && (is_first || *budget > 0) && (number = PyIter_Next(numbers)) != NULL; is_first = 0) {
        PyObject *next, *event = NULL;
        uint64_t index = PyLong_AsUnsignedLongLong(number);
        Bytes payload;
        done = 0;
        if (index != (uint64_t)-1 && index >= frame->first && (index -= frame->first) < frame->count &&
            value(frame, DATA, index, &payload) && (next = type_of(frame, index, &before, type)) != NULL) {
            Py_XSETREF(type, next);
            event = event_of(state, frame, index, &payload, number, recorded_at, type);
            done = event != NULL && !PyList_Append(events, event);
            Py_XDECREF(event);
            *budget -= payload.size;
        }
        Py_DECREF(number);
    }
    Py_XDECREF(recorded_at);
    Py_XDECREF(type);
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
    int64_t budget = PyLong_AsLongLong(arguments[4]);
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
        return PyLong_FromLongLong(budget);
    PyErr_Clear(); /* the same in Python says what it is, if it is anything */
    if (PyList_SetSlice(events, had, PyList_GET_SIZE(events), NULL))
        return NULL;
    Py_RETURN_NONE;
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
    END_OF_FUNCTIONS,
};

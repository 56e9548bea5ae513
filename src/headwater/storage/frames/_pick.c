/* The events of a frame as objects: what `random_access.pick` does for frames without rare columns, as machine code.
 *
 * It takes only what is whole and plain. Everything else it leaves to the same function in Python, by answering None:
 * rare columns, events that are not there, places outside of the frame, text that is no UTF-8. So there is one place that
 * says what is wrong with a frame, and this one reads no byte that it has not compared with the frame's end.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if PY_BIG_ENDIAN
#error "frames are little-endian"
#endif

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
    PyTypeObject *event;
    PyObject *zero, *no_text, *no_bytes, *no_tags, *no_attributes, *data;
} State;

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
    PyObject *recorded_at = PyLong_FromLongLong(frame->recorded_at), *type = NULL;
    Bytes before = {NULL, 0};
    int done = recorded_at != NULL;
    for (Py_ssize_t each = 0; done && each < PySequence_Fast_GET_SIZE(numbers) && (!each || *budget > 0); each++) {
        PyObject *number = PySequence_Fast_GET_ITEM(numbers, each), *next, *event = NULL;
        uint64_t index = PyLong_AsUnsignedLongLong(number);
        Bytes payload;
        if (index == (uint64_t)-1 || index < frame->first) {
            done = 0;
        } else if ((index -= frame->first) >= frame->count) {
            done = 0; /* lost, and the loss was accepted */
        } else if (value(frame, DATA, index, &payload) && (next = type_of(frame, index, &before, type)) != NULL) {
            Py_XSETREF(type, next);
            event = event_of(state, frame, index, &payload, number, recorded_at, type);
            done = event != NULL && !PyList_Append(events, event);
            Py_XDECREF(event);
            *budget -= payload.size;
        } else {
            done = 0;
        }
    }
    Py_XDECREF(recorded_at);
    Py_XDECREF(type);
    return done;
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
    if (given != 5 || !PyList_CheckExact(arguments[3])) {
        PyErr_SetString(PyExc_TypeError, "pick takes content, an offset, numbers, a list of events, and a budget");
        return NULL;
    }
    Py_ssize_t offset = PyLong_AsSsize_t(arguments[1]);
    int64_t budget = PyLong_AsLongLong(arguments[4]);
    if (PyErr_Occurred())
        return NULL;
    PyObject *numbers = PySequence_Fast(arguments[2], "numbers are a sequence"), *events = arguments[3];
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

static int executed(PyObject *module)
{
    State *state = PyModule_GetState(module);
    PyObject *events = PyImport_ImportModule("headwater.core.event");
    if (events == NULL)
        return -1;
    PyObject *encodings = PyObject_GetAttrString(events, "Encoding");
    state->event = (PyTypeObject *)PyObject_GetAttrString(events, "sequenced");
    state->no_attributes = PyObject_GetAttrString(events, "NO_ATTRIBUTES");
    state->data = encodings == NULL ? NULL : PyObject_GetAttrString(encodings, "DATA");
    state->zero = PyLong_FromLong(0);
    state->no_text = PyUnicode_FromString("");
    state->no_bytes = PyBytes_FromString("");
    state->no_tags = PyTuple_New(0);
    Py_XDECREF(encodings);
    Py_DECREF(events);
    if (PyErr_Occurred())
        return -1;
    if (!PyType_Check(state->event) || !PyType_IsSubtype(state->event, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "an event is a tuple");
        return -1;
    }
    return 0;
}

static int traversed(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->event);
    Py_VISIT(state->no_attributes);
    Py_VISIT(state->data);
    return 0;
}

static int cleared(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->event);
    Py_CLEAR(state->no_attributes);
    Py_CLEAR(state->data);
    Py_CLEAR(state->zero);
    Py_CLEAR(state->no_text);
    Py_CLEAR(state->no_bytes);
    Py_CLEAR(state->no_tags);
    return 0;
}

static void freed(void *module)
{
    cleared(module);
}

static PyMethodDef methods[] = {
    {"pick", (PyCFunction)(void (*)(void))pick, METH_FASTCALL, pick_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, executed},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "headwater.storage.frames._pick",
    .m_size = sizeof(State),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = traversed,
    .m_clear = cleared,
    .m_free = freed,
};

PyMODINIT_FUNC PyInit__pick(void)
{
    return PyModuleDef_Init(&definition);
}

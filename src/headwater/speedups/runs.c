/* Messages of AMQP that are alike and come one after the other: what is the same is compared, what differs
 * taken out. The twins are `transfers_any` of `amqp/protocol/runs.py` and `alike_any` of `core/alike.py`.
 *
 * What is left to Python: places that do not lie in one another, and values of another type. */

#include "speedups.h"

/* Append two pieces as one object. */
static int is_appended(PyObject *list, Bytes first, const char *second, Py_ssize_t size)
{
    PyObject *joined = PyBytes_FromStringAndSize(NULL, first.size + size);
    char *content = joined == NULL ? NULL : PyBytes_AsString(joined);
    if (content == NULL)
        return 0;
    memcpy(content, first.begin, first.size);
    memcpy(content + first.size, second, size);
    int failed = PyList_Append(list, joined);
    Py_DECREF(joined);
    return !failed;
}

/* As `amqp.protocol.runs.transfers_any`; None where that has to be asked. */
FUNCTION(transfers)
{
    enum { AT, ID_AT, TAG_BYTES, HEAD_BYTES, FRAME_BYTES_MAX, COUNT_MAX, SIZES };
    static const Bytes nothing = {"", 0};
    Py_ssize_t sizes[SIZES];
    Bytes buffer;
    if (given != 1 + SIZES || !is_bytes(arguments[0], &buffer) || !are_sizes(arguments + 1, SIZES, sizes))
        goto left;
    Py_ssize_t at = sizes[AT], id_at = sizes[ID_AT];
    Py_ssize_t tag_bytes = sizes[TAG_BYTES], head_bytes = sizes[HEAD_BYTES];
    if (at > buffer.size || id_at < 4 || id_at > head_bytes - 6 || tag_bytes > head_bytes - id_at - 6)
        goto left;
    PyObject *payloads = PyList_New(0), *tags = PyList_New(0);
    const char *head = buffer.begin + at;
    Py_ssize_t tag_at = id_at + 6, rest_at = tag_at + tag_bytes, count = 0;
    int done = payloads != NULL && tags != NULL;
    for (; done && count < sizes[COUNT_MAX] && buffer.size - at >= head_bytes; count++) {
        const char *next = buffer.begin + at;
        Py_ssize_t size = (Py_ssize_t)big(next, 4);
        if (size < head_bytes || size > sizes[FRAME_BYTES_MAX] || size > buffer.size - at
            || memcmp(next + 4, head + 4, id_at - 4)
            || big(next + id_at, 4) != big(head + id_at, 4) + (uint64_t)count
            || memcmp(next + id_at + 4, head + id_at + 4, 2)
            || memcmp(next + rest_at, head + rest_at, head_bytes - rest_at))
            break;
        done = is_appended(payloads, nothing, next + head_bytes, size - head_bytes)
               && is_appended(tags, nothing, next + tag_at, tag_bytes);
        at += size;
    }
    if (done)
        return Py_BuildValue("(NNn)", payloads, tags, at);
    Py_XDECREF(payloads);
    Py_XDECREF(tags);
left:
    return left_to_python();
}

/* As `core.alike.alike_any`; None, with nothing appended, where that has to be asked. */
FUNCTION(alike)
{
    Bytes head, tail, kept;
    Py_ssize_t at, places[4], bytes_max, total = 0;
    if (given != 12 || !PyList_Check(arguments[0]) || !PyList_Check(arguments[10])
        || !PyList_Check(arguments[11]) || !are_sizes(arguments + 1, 1, &at)
        || !are_sizes(arguments + 4, 4, places) || !are_sizes(arguments + 9, 1, &bytes_max)
        || !is_bytes(arguments[2], &head) || !is_bytes(arguments[3], &tail) || !is_bytes(arguments[8], &kept))
        goto left;
    PyObject *messages = arguments[0], *data = arguments[10], *envelopes = arguments[11];
    Py_ssize_t tail_at = places[0], content_at = places[1], rest_at = places[3];
    Py_ssize_t size_at = content_at - places[2];
    Py_ssize_t had[2] = {PyList_Size(data), PyList_Size(envelopes)};
    if ((places[2] != 1 && places[2] != 4) || size_at < 0 || head.size > tail_at || tail_at > size_at
        || tail.size > size_at - tail_at || rest_at > content_at)
        goto left;
    for (; at < PyList_Size(messages); at++) {
        Bytes message, nothing = {"", 0};
        if (!is_bytes(PyList_GetItem(messages, at), &message))
            goto undone;
        if (message.size < content_at || message.size - rest_at > bytes_max - kept.size
            || memcmp(message.begin, head.begin, head.size)
            || memcmp(message.begin + tail_at, tail.begin, tail.size))
            break;
        Py_ssize_t content = message.size - content_at;
        if (content != (Py_ssize_t)big(message.begin + size_at, (size_t)places[2]))
            break;
        if (!is_appended(envelopes, kept, message.begin + rest_at, content_at - rest_at)
            || !is_appended(data, nothing, message.begin + content_at, content))
            goto undone;
        total += message.size;
    }
    return Py_BuildValue("(nn)", at, total);
undone:
    PyErr_Clear();
    if (PyList_SetSlice(data, had[0], PyList_Size(data), NULL)
        || PyList_SetSlice(envelopes, had[1], PyList_Size(envelopes), NULL))
        return NULL;
left:
    return left_to_python();
}

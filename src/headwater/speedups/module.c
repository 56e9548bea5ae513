/* The module itself: its state, and the functions of the other files put together. */

#include "speedups.h"

#ifndef SOURCES_DIGEST
#error "the digest of the C files is missing: hatch_build.py gives it"
#endif

static PyMethodDef *const tables[] = {frame_functions, json_functions, message_functions, run_functions};

static int executed(PyObject *module)
{
    State *state = PyModule_GetState(module);
    state->zero = PyLong_FromLong(0);
    state->no_text = PyUnicode_FromString("");
    state->no_bytes = PyBytes_FromString("");
    state->no_tags = PyTuple_New(0);
    if (PyErr_Occurred() || PyModule_AddStringConstant(module, "DIGEST", SOURCES_DIGEST))
        return -1;
    for (size_t each = 0; each < sizeof tables / sizeof *tables; each++)
        if (PyModule_AddFunctions(module, tables[each]))
            return -1;
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

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, executed},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "headwater.speedups._native",
    .m_size = sizeof(State),
    .m_slots = slots,
    .m_traverse = traversed,
    .m_clear = cleared,
    .m_free = freed,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}

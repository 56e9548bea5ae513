/* The module itself: its state, and the functions of the other files put together. */

#include "speedups.h"

#ifndef SOURCES_DIGEST
#error "the digest of the C files is missing: hatch_build.py gives it"
#endif

static PyMethodDef *const tables[] = {frame_functions, message_functions, run_functions};

static int executed(PyObject *module)
{
    for (size_t each = 0; each < sizeof tables / sizeof *tables; each++)
        if (PyModule_AddFunctions(module, tables[each]))
            return -1;
    return PyModule_AddStringConstant(module, "DIGEST", SOURCES_DIGEST);
}

static int traversed(PyObject *module, visitproc visit, void *arg)
{
    Py_VISIT(((State *)PyModule_GetState(module))->plain);
    return 0;
}

static int cleared(PyObject *module)
{
    Py_CLEAR(((State *)PyModule_GetState(module))->plain);
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

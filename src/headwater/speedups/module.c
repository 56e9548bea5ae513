/* The module itself: its state, and its functions from the other files. */

#include "speedups.h"

#ifndef SOURCES_DIGEST
#error "the digest of the C files is missing: hatch_build.py gives it"
#endif

#define ENTRY(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}
static PyMethodDef functions[] = {
    ENTRY(alike), ENTRY(know_event), ENTRY(look_through), ENTRY(pick), ENTRY(transfers), ENTRY(walk),
#ifdef __linux__
    ENTRY(write_behind), ENTRY(writer),
#endif
    {NULL, NULL, 0, NULL},
};

static int executed(PyObject *module)
{
    return PyModule_AddStringConstant(module, "DIGEST", SOURCES_DIGEST);
}

static void freed(void *module)
{
    Py_CLEAR(((State *)PyModule_GetState(module))->plain);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, executed},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "headwater.speedups._native",
    .m_size = sizeof(State),
    .m_methods = functions,
    .m_slots = slots,
    .m_free = freed,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}

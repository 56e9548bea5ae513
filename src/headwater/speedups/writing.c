/* A thread that makes pieces of a file durable, one at a time, without the interpreter. It has no twin: where
 * it is missing, the committer of a log writes. Two eventfds say when a piece begins and has ended. */

#include "speedups.h"

#ifdef __linux__
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

static const char NAME[] = "headwater.speedups.Writer";

typedef struct {
    int begun, ended, fd; /* of the file; below 0 to end the thread */
    off_t at;
    Bytes piece;
} Writer;

/* 0, or the error number. */
static int written(const Writer *writer)
{
    for (Py_ssize_t done = 0; done < writer->piece.size;) {
        size_t left = (size_t)(writer->piece.size - done);
        ssize_t more = pwrite(writer->fd, writer->piece.begin + done, left, writer->at + done);
        if (more > 0)
            done += more;
        else if (!more || errno != EINTR)
            return more ? errno : EIO;
    }
    return fdatasync(writer->fd) ? errno : 0;
}

static void *run(void *argument)
{
    Writer *writer = argument;
    eventfd_t count;
    while (!eventfd_read(writer->begun, &count) && writer->fd >= 0)
        eventfd_write(writer->ended, 1 + (eventfd_t)written(writer));
    close(writer->begun);
    PyMem_RawFree(writer);
    return NULL;
}

/* A new thread: at the end of each piece it adds 1 + the error number to the eventfd `ended`. */
FUNCTION(writer)
{
    Py_ssize_t ended;
    pthread_t thread;
    sigset_t all, before;
    Writer *made = given == 1 && are_sizes(arguments, 1, &ended) ? PyMem_RawCalloc(1, sizeof *made) : NULL;
    if (made == NULL)
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    *made = (Writer){.ended = (int)ended, .begun = eventfd(0, EFD_CLOEXEC)};
    sigfillset(&all); /* signals are for the threads of Python */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = made->begun < 0 ? errno : pthread_create(&thread, NULL, run, made);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure) {
        close(made->begun);
        PyMem_RawFree(made);
        errno = failure;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    pthread_detach(thread);
    return PyCapsule_New(made, NAME, NULL);
}

/* Begin a piece, when none is under way; its content must stay until it has ended. An fd below 0 ends the
 * thread, and with it the writer. */
FUNCTION(write_behind)
{
    Writer *writer = given == 4 ? PyCapsule_GetPointer(arguments[0], NAME) : NULL;
    Py_ssize_t at;
    if (writer == NULL || !is_bytes(arguments[2], &writer->piece) || !are_sizes(arguments + 3, 1, &at))
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "expected a writer and a piece");
    writer->at = at;
    writer->fd = (int)PyLong_AsLong(arguments[1]);
    eventfd_write(writer->begun, 1);
    Py_RETURN_NONE;
}
#endif

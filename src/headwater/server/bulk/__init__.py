"""The bulk process: serves Arrow Flight on the same logs as the server. It reads them itself, and asks the server for
everything else.

`supervisor` starts it and keeps it alive, `calls` answers its requests (both in the server's process); `process` is its
main program, `backend` the logs of its Flight server; `link` connects the two processes.
"""

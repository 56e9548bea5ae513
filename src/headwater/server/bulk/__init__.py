"""The bulk process: Arrow Flight beside the server, on the same logs. It reads them itself, and asks for the rest.

`supervisor` starts it and keeps it alive, `calls` answers its requests (both in the server's process); `process` is its
main program, `backend` the logs of its Flight server; `link` connects the two processes.
"""

"""The bulk process: Arrow Flight beside the server, on the same logs. It reads them by itself, and asks for the rest.

`supervisor` starts it and keeps it alive, `calls` answers what it asks (both in the server's process); `process` is its
main program, `backend` what its Flight server works on; `link` is what connects the two.
"""

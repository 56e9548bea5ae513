"""AMQP 1.0 with the Event Stream Extensions (Committee Specification Draft 01): every log is an event log node.

`protocol` is the engine, without I/O; `filters` what receivers ask for; `streams` the node; the rest joins them to
connections, users and the server.
"""

"""AMQP 1.0 with the Event Stream Extensions (Committee Specification Draft 01): every log is an event log node.

`protocol` is the engine, without I/O. `filters` parses and evaluates receivers' filters. `streams` is the node. The
other modules connect the engine, the filters and the node to connections, users and the server."""

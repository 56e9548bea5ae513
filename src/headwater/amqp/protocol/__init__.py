"""The AMQP 1.0 engine: bytes in, events out, bytes back. It does no I/O, reads no clock, and has no knowledge of logs.

OASIS AMQP 1.0, parts 1 (types), 2 (transport), 3 (messaging), 4 (only the transaction types, to refuse them properly)
and 5 (SASL) are implemented.
"""

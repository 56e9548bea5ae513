"""The AMQP 1.0 engine: bytes in, events out, bytes back. It does no I/O, reads no clock, and knows no log.

OASIS AMQP 1.0, parts 1 (types), 2 (transport), 3 (messaging), 4 (the transaction types, to refuse them well) and
5 (SASL).
"""

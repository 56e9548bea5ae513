"""AMQP messages at the gate: the positions of their sections, and whether every receiver can decode them.

Nothing is decoded here. The AMQP engine (`amqp.protocol`) uses the same functions.
"""

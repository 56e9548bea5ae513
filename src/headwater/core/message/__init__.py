"""Messages of AMQP as the gate sees them: where their sections are, and whether every receiver can decode them.

Nothing is decoded here. The engine of AMQP (`amqp.protocol`) uses the same walks.
"""

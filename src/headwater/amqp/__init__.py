"""AMQP 1.0: event streams (Event Stream Extensions, committee specification draft 01) on top of OASIS AMQP 1.0."""

"""AMQP connections: transport, login, link ends, and their shared state."""

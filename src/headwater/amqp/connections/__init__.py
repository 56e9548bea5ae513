"""AMQP connections: transport, login, link ends and what they share."""

"""Events as AMQP messages, in both directions. No I/O."""

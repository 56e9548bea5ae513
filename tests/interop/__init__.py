"""Real AMQP clients against a real server; see README.md."""

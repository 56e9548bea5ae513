"""The contenders: Headwater, and brokers that a user would pick instead, each durable."""

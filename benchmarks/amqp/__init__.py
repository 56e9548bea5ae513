"""Benchmarks of AMQP: `python -m benchmarks.amqp`, described in docs/benchmarks-amqp.md.

The same load, made by the Go program in `load/`, on Headwater and on brokers that a user would pick instead. The
brokers are optional: each installs itself into `build/peers/`, or says why it cannot.
"""

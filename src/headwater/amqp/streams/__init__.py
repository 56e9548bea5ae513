"""The event log as an AMQP node: Event Stream Extensions for AMQP 1.0 (CSD 01), the parts that do no I/O."""

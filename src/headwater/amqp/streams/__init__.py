"""The event log as an AMQP node: the parts of the Event Stream Extensions for AMQP 1.0 (CSD 01) that do no I/O."""

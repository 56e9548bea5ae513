"""The nodes `$management` and `$events` on the wire: AMQP Management, and Management Event Notification 0.2.

`headwater.management` knows what can be managed, and which notifications there are; here is how they go over the wire.
"""

"""The nodes `$management` and `$events` on the wire: AMQP Management, and Management Event Notification 0.2.

`headwater.management` defines the entities and the notifications; this package transfers them over AMQP.
"""

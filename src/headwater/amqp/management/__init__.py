"""The nodes `$management` and `$events` on the wire: AMQP Management, and Management Event Notification 0.2.

What can be managed, and what happens, is known in `headwater.management`; here is how it goes over the wire.
"""

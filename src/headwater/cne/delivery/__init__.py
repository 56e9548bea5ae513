"""Webhooks: selecting and sending the notifications for each one."""

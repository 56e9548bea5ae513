"""Webhooks: which notifications each one gets, and how they are sent."""

"""Cloud Native Events: the O-Cloud notification API (v1 and v2) with webhooks, over a log.

Implements the Cloud Native Events specification 0.1.0 and O-RAN's O-Cloud Notification API for Event Consumers (WG6,
v03.00), as deployed consumers and producers use them; `docs/conformance/cne.md` describes conformance to each."""

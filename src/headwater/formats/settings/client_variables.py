"""The environment variables of clients: the only list of those read by commands, pipelines and applications.

A server in the same environment ignores them: they are not its settings.
"""

from __future__ import annotations

from typing import Final

URL: Final = "HEADWATER_URL"
AMQP_URL: Final = "HEADWATER_AMQP_URL"
FLIGHT_URL: Final = "HEADWATER_FLIGHT_URL"
USER: Final = "HEADWATER_USER"
PASSWORD: Final = "HEADWATER_PASSWORD"
TOKEN: Final = "HEADWATER_TOKEN"
CA_FILE: Final = "HEADWATER_CA_FILE"
LOG: Final = "HEADWATER_LOG"
CREATE_LOG: Final = "HEADWATER_CREATE_LOG"
CLIENT_VARIABLES: Final = frozenset({URL, AMQP_URL, FLIGHT_URL, USER, PASSWORD, TOKEN, CA_FILE, LOG, CREATE_LOG})

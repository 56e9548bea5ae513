"""Files named in settings: `serve` and `config` check them in the same way."""

from __future__ import annotations

from ...cne.delivery.webhook import tls_of
from ...formats.settings.declaration import InvalidConfiguration
from ...http.outgoing import BadFile
from ..config.settings import Config
from ..process.sockets import certificates


def check_files(config: Config) -> None:
    """Read the certificates and keys. Raises InvalidConfiguration for the first that is missing or wrong."""
    certificates(config.tls)
    try:
        tls_of(config.cne).check()
    except BadFile as error:
        raise InvalidConfiguration(str(error), f"cne.webhook_{error.name}") from None

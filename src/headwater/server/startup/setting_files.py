"""Files named in settings: `serve` and `config` check them in the same way."""

from __future__ import annotations

from ...cne.delivery.webhook import tls_of
from ...formats.settings.declaration import InvalidConfiguration, refuse
from ...http.outgoing import BadFile
from ..config.settings import Config
from ..process.sockets import certificates


def check_files(config: Config) -> None:
    """Read the certificates and keys. Raises InvalidConfiguration, with a line for each room's first wrong file."""
    problems = []
    try:
        certificates(config.tls)
    except InvalidConfiguration as error:
        problems.append(error)
    try:
        tls_of(config.cne).check()
    except BadFile as error:
        problems.append(InvalidConfiguration(str(error), f"cne.webhook_{error.name}"))
    refuse(problems)

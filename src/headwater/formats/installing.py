"""How to install missing dependencies: from the checkout or the wheel, because Headwater is on no package index."""

from __future__ import annotations

from .. import __version__


def how_to_install(extra: str) -> str:
    """The commands that install Headwater with an extra (`spark`, `postgres`, `oidc`), as the end of a sentence.

    Never by its bare name: an index may have an unrelated package of that name.
    """
    wheel = f'"$(echo ./headwater-{__version__}-*.whl)[{extra}]"'
    return f"`pip install '.[{extra}]'` in a checkout of Headwater, or `pip install {wheel}` beside its wheel"

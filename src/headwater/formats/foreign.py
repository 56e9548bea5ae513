"""Conversion of other systems' events: valid tags, derived ids, times in one form.

The escapes are part of the import's promise (docs/guides/import.md): a file imported again has the same tags and ids.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from datetime import UTC, datetime
from urllib.parse import quote

from ..core.attribute_rules import check_time
from ..core.errors import InvalidInput
from ..core.identifier import VARIANT
from ..core.limits import show

TAG_KEY_CHARS_MAX = 50
TAG_VALUE_CHARS_MAX = 256
_UNFIT_KEY_CHARS = re.compile(r"[^a-zA-Z0-9_-]+")
_EPOCH = re.compile(r"-?\d{9,17}(\.\d+)?")
_COMPACT_DIGITS = 14
_DIGEST_CHARS = 32
_NAMESPACE = uuid.NAMESPACE_URL.bytes


def fit_tag(key: str, value: str) -> str:
    """The tag `key:value`, made valid for a log; the bare key if the value is empty.

    In a key, each run of characters other than letters, digits, `_` and `-` becomes one `_`, and the key is cut to 50
    characters. In a value, `%` and unprintable characters are percent-encoded; a value over 256 characters is cut to
    its first 223, followed by `~` and 32 hexadecimal digits of its SHA-256, so that different values stay different.
    """
    fit_key = _UNFIT_KEY_CHARS.sub("_", key)[:TAG_KEY_CHARS_MAX]
    if not fit_key:
        raise InvalidInput(f"a tag needs a key, got {show(key)}")
    return f"{fit_key}:{_fit_value(value)}" if value else fit_key


def _fit_value(value: str) -> str:
    if "%" in value or not value.isprintable():
        value = "".join(
            char if char.isprintable() and char != "%" else quote(char, safe="", errors="surrogatepass")
            for char in value
        )
    if len(value) <= TAG_VALUE_CHARS_MAX:
        return value
    digest = hashlib.sha256(value.encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{value[: TAG_VALUE_CHARS_MAX - _DIGEST_CHARS - 1]}~{digest}"


def derived_id(source: str, position: int, content: str) -> str:
    """The id of an event without its own: a UUIDv5 of its source, its position and its content.

    So the same file gives the same ids on each import, also after more was appended to the file.
    """
    # Equals uuid.uuid5, in a fifth of its time.
    name = f"{source}#{position}\n{content}".encode()
    digest = hashlib.sha1(_NAMESPACE + name, usedforsecurity=False).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{VARIANT[digest[16]]}{digest[17:20]}-{digest[20:32]}"


def rfc3339(text: str, time_format: str | None = None) -> str:
    """A time as RFC 3339, from ISO 8601, from seconds or milliseconds since 1970, or by a `strptime` format.

    A leap second stays unchanged: a log accepts it, but Python's datetime cannot represent it. A time without a zone is
    taken as UTC. Raises InvalidInput; also for 14 digits without a format, which may mean YYYYMMDDhhmmss.
    """
    text = text.strip()
    try:
        if time_format is not None:
            moment = datetime.strptime(text, time_format)
        elif _EPOCH.fullmatch(text):
            check_unambiguous(text)
            number = float(text)
            moment = datetime.fromtimestamp(number / 1000 if abs(number) >= 1e11 else number, UTC)
        else:
            moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        if time_format is None and check_time(text) is None:
            return text
        allowed = repr(time_format) if time_format else "ISO 8601, or seconds or milliseconds since 1970"
        raise InvalidInput(f"expected a time as {allowed}, got {show(text)}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.isoformat().replace("+00:00", "Z")


def check_unambiguous(number: str) -> None:
    """Raises InvalidInput for a number of 14 digits as a time since 1970: it may mean YYYYMMDDhhmmss."""
    if len(number.partition(".")[0]) == _COMPACT_DIGITS and number[0] != "-":
        problem = f"{show(number)} is ambiguous: YYYYMMDDhhmmss or milliseconds since 1970"
        raise InvalidInput(f"{problem}; write it as YYYY-MM-DDThh:mm:ss")

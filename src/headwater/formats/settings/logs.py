"""A log's settings in JSON, for every protocol that creates or changes logs."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from ...core.settings import LogSettings

_DEFAULTS = LogSettings()


def attribute_name(field: str) -> str:
    """The management name of a log's field, in its entity and its notifications: `retention_ms` is `retentionMs`."""
    head, *rest = field.split("_")
    return head + "".join(map(str.capitalize, rest))


class SettingsJson(Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """A log's settings, or a merge patch of them (RFC 7396): null stands for the default."""

    partitions: int | UnsetType | None = UNSET
    partition_by: str | UnsetType | None = UNSET
    retention_ms: int | UnsetType | None = UNSET
    retention_bytes: int | UnsetType | None = UNSET
    retention_until_acknowledged: bool | UnsetType | None = UNSET
    event_bytes_max: int | UnsetType | None = UNSET
    id_horizon: int | UnsetType | None = UNSET
    keeps_history: bool | UnsetType | None = UNSET
    consumer_age_ms_max: int | UnsetType | None = UNSET
    default_start: str | UnsetType | None = UNSET


def named_settings(given: SettingsJson) -> dict[str, Any]:
    """The given settings, with their values; null is the default."""
    return {
        name: getattr(_DEFAULTS, name) if value is None else value
        for name in SettingsJson.__struct_fields__
        if (value := getattr(given, name)) is not UNSET
    }

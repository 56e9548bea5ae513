from __future__ import annotations


def runtime_information(log: object) -> dict[object, object]:
    return {}

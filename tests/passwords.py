"""Passwords of tests with their hashes, since each hash takes a twentieth of a second when a module is imported."""

from __future__ import annotations

from typing import Final

PASSWORD: Final = "correct horse"
HASH: Final = "$scrypt$ln=14,r=8,p=1$hC83IwT2yQ46On9qsa/mXQ$kp+0/V4j/3NNX8DzuHxl31rbxMBGvcFkwaJQX7bbdb4"
OTHER_PASSWORD: Final = "battery staple"
OTHER_HASH: Final = "$scrypt$ln=14,r=8,p=1$3MuS01cI1lfBnI5Oc2RpCQ$gXyjZ0qzs/8HgoIvVIW/L6SqNTvvcl4PqTtVv5ueR3g"

"""What an Authorization header shows."""

from __future__ import annotations

import base64

import pytest

from headwater.core import Credentials
from headwater.formats.credentials import UNREADABLE, credentials_of


def test_credentials_are_basic_or_bearer():
    assert credentials_of(None) is None
    assert credentials_of(b"Digest x") is credentials_of(b"Basic %") is UNREADABLE
    assert credentials_of(b"Bearer abc") == Credentials("", "abc")
    assert credentials_of(b"basic " + base64.b64encode("jürgen:a:b".encode())) == Credentials("jürgen", "a:b")


@pytest.mark.parametrize("secret", ["secret\0", "sec\nret", "\x7f", "\x85"])
def test_a_password_with_control_characters_is_unreadable(secret):
    """scrypt takes `secret` and `secret\\0` for the same."""
    assert credentials_of(b"Basic " + base64.b64encode(f"ann:{secret}".encode())) is UNREADABLE

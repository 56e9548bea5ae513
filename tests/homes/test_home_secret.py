"""The secret of a home: who is believed by it, and for how long after a renewal."""

from __future__ import annotations

from headwater.homes.home_secret import RENEWAL_MS, HomeSecret, ensure_secret, renew_secret
from headwater.storage.memory import MemoryState


def test_a_home_without_a_secret_believes_nobody() -> None:
    secret = HomeSecret(MemoryState())
    assert secret.value is None
    assert not secret.is_current(b"") and not secret.is_known(b"")


def test_the_previous_secret_is_known_for_a_while_and_is_not_the_current_one() -> None:
    state, now = MemoryState(), [1_000_000]
    ensure_secret(state)
    secret = HomeSecret(state, lambda: now[0])
    old = secret.value
    assert old is not None and secret.is_current(old) and secret.is_known(old)
    ensure_secret(state)
    assert secret.value == old
    renew_secret(state, lambda: now[0])
    new = secret.value
    assert new is not None and new != old
    assert secret.is_current(new) and secret.is_known(new)
    assert not secret.is_current(old), "who listens with it gets nothing more"
    now[0] += RENEWAL_MS - 1
    assert secret.is_known(old)
    now[0] += 1
    assert not secret.is_known(old) and secret.is_known(new)


def test_a_second_renewal_ends_the_first_secret_at_once() -> None:
    state = MemoryState()
    ensure_secret(state)
    secret = HomeSecret(state)
    first = secret.value
    renew_secret(state)
    second = secret.value
    renew_secret(state)
    assert first is not None and second is not None
    assert not secret.is_known(first) and secret.is_known(second)

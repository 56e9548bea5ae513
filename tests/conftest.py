"""Set-up that every kind of test shares: the profiles of the property tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "quick",
    max_examples=40,
    stateful_step_count=30,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "long",
    settings.get_profile("quick"),
    max_examples=2000,
    stateful_step_count=80,
    derandomize=False,
    print_blob=True,
)
settings.load_profile(os.environ.get("HEADWATER_TEST_PROFILE", "quick"))

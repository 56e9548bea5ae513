"""Numbers in arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.formats.arrow.columns import distinct


@given(st.lists(st.integers(0, 40)))
@pytest.mark.parametrize("dtype", [np.int64, np.uint32, np.uint16])
def test_distinct_numbers_ascend(dtype: type[np.integer], numbers: list[int]) -> None:
    found = distinct(np.array(numbers, dtype))
    assert found.dtype == dtype
    assert found.tolist() == sorted(set(numbers))

"""Marks of tests that make no sense on the compiled build (`make compiled`): few, each with its reason.

Constants of a module may be replaced on both builds, and what is interpreted; so may methods that only interpreted
code calls. What compiled code calls in compiled code is bound when it is compiled.
"""

from __future__ import annotations

import pytest

IS_COMPILED = False

gives_wrong_types = pytest.mark.skipif(IS_COMPILED, reason="a compiled class takes no value of another type at all")
replaces_methods = pytest.mark.skipif(IS_COMPILED, reason="methods of a compiled class cannot be replaced")
replaces_functions = pytest.mark.skipif(IS_COMPILED, reason="compiled code calls compiled functions directly")
counts_lines = pytest.mark.skipif(IS_COMPILED, reason="machine code tells no tracer of its lines")

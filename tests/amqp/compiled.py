"""Whether these tests run on the engine as machine code (`make compiled`), where a few of them make no sense."""

from __future__ import annotations

import pytest

from headwater.amqp.protocol import codec

IS_COMPILED = not str(codec.__file__).endswith(".py")

gives_wrong_types = pytest.mark.skipif(IS_COMPILED, reason="a compiled class takes no value of another type at all")
replaces_methods = pytest.mark.skipif(IS_COMPILED, reason="methods of a compiled class cannot be replaced")

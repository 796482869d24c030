"""The device "xla", as for its own tests."""

from __future__ import annotations

from tests.xla.conftest import built as built, default_state as default_state, enabled as enabled

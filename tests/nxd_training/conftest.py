"""The device "neuron", as for trainers."""

from __future__ import annotations

from tests.device.conftest import built as built

"""Tests of caches capture a program once."""

from __future__ import annotations

from typing import Any

import pytest

from optimum_neuron.exporters import build
from optimum_neuron.files.plain_json import canonical_json

_BUILT: dict[bytes, build.Built] = {}
"""Captured programs by the fields with which the compile cache finds them."""


@pytest.fixture
def compiled_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture a program once in this worker, for tests of empty caches: a miss stays one, and takes no time."""
    real = build.compile_source

    def compile_source(source: Any, config: Any, target: Any, **options: Any) -> Any:
        if source.module is not None or options.get("trust_remote_code"):
            return real(source, config, target, **options)
        key = canonical_json(build.request_fields(source, config), what="request of a test")
        if key not in _BUILT:
            _BUILT[key] = real(source, config, target, **options)
        elif "on_done" in options:
            for name in _BUILT[key].compiled.program.graphs:
                options["on_done"](name)
        return _BUILT[key]

    monkeypatch.setattr(build, "compile_source", compile_source)

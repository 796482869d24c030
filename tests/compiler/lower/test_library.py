"""Compiled functions that threads call at once (real compiles, a few seconds each)."""

import gc
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from optimum_neuron.compiler.lower import probe_compiler
from optimum_neuron.compiler.lower.library import load_function
from optimum_neuron.errors import LoweringError
from optimum_neuron.files.shared_objects import SharedObject

pytestmark = pytest.mark.skipif(probe_compiler() is None, reason="no C++ compiler on this machine")


@pytest.fixture
def function(functions):
    return functions["chain"]


def inputs():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(384, 384, generator=generator) / 20 for _ in range(2)] + [torch.zeros(())]


def test_function_releases_the_gil(function):
    inside, values = threading.Event(), []
    arguments = inputs()

    def call():
        inside.set()
        function(arguments)
        inside.clear()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)  # a thread that has Python's lock keeps it until it lets go
    try:
        thread = threading.Thread(target=call)
        thread.start()
        while thread.is_alive():
            values.append(inside.is_set())
            time.sleep(0)
    finally:
        sys.setswitchinterval(interval)
    assert any(values)


def test_concurrent_calls_get_separate_results(function):
    expected = function(inputs())[0]
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda _: torch.equal(function(inputs())[0], expected), range(20)))


@pytest.mark.full(days=2)
def test_calls_keep_no_references(function):
    arguments = inputs()

    def num_references():
        gc.collect()
        return [tensor._use_count() for tensor in arguments], sum(
            issubclass(type(o), torch.Tensor) for o in gc.get_objects()
        )

    function(arguments)
    before = num_references()
    for _ in range(20):
        function(arguments)
    assert num_references() == before


def test_gradients_are_not_recorded_and_grad_mode_is_restored(function):
    arguments = inputs()
    arguments[0].requires_grad_()
    assert not function(arguments)[0].requires_grad and torch.is_grad_enabled()


def test_invalid_library_and_record_of_another_function_are_refused(function, tmp_path):
    path = tmp_path / "unit.so"
    path.write_bytes(b"not a library")
    for library, name in ((path, "sub_0"), (Path(function.library._name), "sub_other")):
        with pytest.raises(LoweringError) as excinfo:
            load_function(SharedObject(library=library, function=name), 1)
        assert excinfo.value.details == {"library": str(library)}

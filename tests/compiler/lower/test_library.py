"""Compiled functions that threads call at once (real compiles, a few seconds each)."""

from __future__ import annotations

import gc
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from optimum_neuron.compiler.lower.choose import probe_compiler
from optimum_neuron.compiler.lower.library import load_function
from optimum_neuron.errors import LoweringError
from optimum_neuron.shared_objects import SharedObject
from tests.compiler.lower.test_unit import compiled
from tests.programs import body_of, spec

pytestmark = pytest.mark.skipif(probe_compiler() is None, reason="no C++ compiler on this machine")
SIZE = 384


def chain(x, y, total):
    for _ in range(30):
        x = (x @ y).tanh()
    total.add_(x.sum())
    return x, x.sum(0)


@pytest.fixture(scope="module")
def function(tmp_path_factory):
    body = body_of(chain, spec(SIZE, SIZE), spec(SIZE, SIZE), spec(), num_outputs=2)
    return compiled([body], tmp_path_factory.mktemp("store"))[0]


def inputs():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(SIZE, SIZE, generator=generator) / 20 for _ in range(2)] + [torch.zeros(())]


def seen_by_another_thread(function):
    """Whether Python code of another thread runs while the function does."""
    inside, seen = threading.Event(), []
    given = inputs()

    def call():
        inside.set()
        function(given)
        inside.clear()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)  # a thread that has Python's lock keeps it until it lets go
    try:
        thread = threading.Thread(target=call)
        thread.start()
        while thread.is_alive():
            seen.append(inside.is_set())
            time.sleep(0)
    finally:
        sys.setswitchinterval(interval)
    return any(seen)


def test_it_lets_go_of_the_lock_of_python(function):
    assert seen_by_another_thread(function)


def test_many_threads_get_their_own_results(function):
    expected, wrong = function(inputs())[0], []

    def call():
        for _ in range(5):
            if not torch.equal(function(inputs())[0], expected):
                wrong.append(1)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_calls_keep_no_references(function):
    given = inputs()

    def num_references():
        gc.collect()
        return [tensor._use_count() for tensor in given], sum(
            issubclass(type(o), torch.Tensor) for o in gc.get_objects()
        )

    function(given)
    before = num_references()
    for _ in range(20):
        function(given)
    assert num_references() == before


def test_gradients_are_not_recorded_and_the_mode_is_as_before(function):
    given = inputs()
    given[0].requires_grad_()
    assert not function(given)[0].requires_grad and torch.is_grad_enabled()


def test_a_file_that_is_no_library_is_refused(tmp_path):
    path = tmp_path / "unit.so"
    path.write_bytes(b"not a library")
    with pytest.raises(LoweringError) as refused:
        load_function(SharedObject(library=path, function="sub_0"), 1)
    assert refused.value.details == {"library": str(path)}


def test_a_record_of_another_function_is_refused(function):
    stored = SharedObject(library=Path(function.library._name), function="sub_other")
    with pytest.raises(LoweringError):
        load_function(stored, 1)

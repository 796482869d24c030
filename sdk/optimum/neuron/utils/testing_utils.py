"""`optimum.neuron.utils.testing_utils`: marks for tests that need a compiler, a kind of instance, or time."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import TypeVar

from optimum.neuron.utils.import_utils import is_neuronx_available

Test = TypeVar("Test", bound=Callable[..., object])


def requires_neuronx(test_case: Test) -> Test:
    """Skip a test, or all tests of a class, where `torch_neuronx` cannot be imported."""
    return unittest.skipUnless(is_neuronx_available(), "torch_neuronx is not installed")(test_case)


def is_inferentia_test(test_case: Test) -> Test:
    """Mark a test for pytest as one of Inferentia; it needs `torch_neuronx` too."""
    return _marked("is_inferentia_test", test_case)


def is_trainium_test(test_case: Test) -> Test:
    """Mark a test for pytest as one of Trainium; it needs `torch_neuronx` too."""
    return _marked("is_trainium_test", test_case)


def slow(test_case: Test) -> Test:
    """Mark a test for pytest as a slow one; it needs `torch_neuronx` too."""
    return _marked("slow", test_case)


def _marked(name: str, test_case: Test) -> Test:
    """The test with a mark; unchanged where pytest is not installed."""
    test_case = requires_neuronx(test_case)
    try:
        import pytest
    except ImportError:
        return test_case
    return getattr(pytest.mark, name)(test_case)

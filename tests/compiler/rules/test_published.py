"""Sources of the published names."""

import pytest

from optimum_neuron.compiler.rules.codes import CODES
from optimum_neuron.compiler.rules.published import CUSTOM_CALLS, RESTRICTED, XLA_OPERATOR_LIST, instruction_source


@pytest.mark.parametrize(
    ("name", "document"), [("Add", "operator list"), ("AwsNeuronTopK", "NCC_EHCA005"), ("Convolution", "NCC_EVRF010")]
)
def test_every_instruction_has_its_document(name, document):
    assert document in instruction_source(name)


def test_lists_do_not_overlap_and_codes_exist():
    assert not XLA_OPERATOR_LIST & CUSTOM_CALLS
    assert not RESTRICTED.keys() & (XLA_OPERATOR_LIST | CUSTOM_CALLS)
    assert set(RESTRICTED.values()) <= CODES.keys()


def test_sort_and_fft_are_not_instructions():
    for name in ("Sort", "Fft", "Cholesky", "TriangularSolve", "While"):
        with pytest.raises(KeyError):
            instruction_source(name)

"""Autobucketing: the kernel pads and picks, buckets share weights and states."""

import copy
from typing import List  # noqa: UP035, TorchScript reads the annotations

import pytest
import torch
from torch import nn

from optimum_neuron.compiler import read_program
from optimum_neuron.compiler.neff import open_neff
from optimum_neuron.errors import ConfigError
from optimum_neuron.tracing import BucketModelConfig, bucket_model_trace
from tests.raising import raises
from tests.tracing.conftest import FAST


def pad(tensors: List[torch.Tensor]):  # noqa: UP006
    length = tensors[0].size(1)
    bucket = 0
    if length > 8:
        bucket = 1
    size = [8, 16][bucket]
    padded: List[torch.Tensor] = []  # noqa: UP006
    for tensor in tensors:
        padded.append(torch.cat([tensor, torch.zeros([1, size - length], dtype=tensor.dtype)], dim=1))
    return padded, torch.tensor([bucket])


def parts(shapes: List[List[List[int]]], states: List[torch.Tensor], bucket: torch.Tensor) -> List[torch.Tensor]:  # noqa: UP006
    index = int(bucket.item())
    results: List[torch.Tensor] = []  # noqa: UP006
    for number in range(len(states)):
        results.append(torch.slice_copy(states[number], 1, 0, shapes[index][number][1]))
    return results


def views(shapes: List[List[List[int]]], states: List[torch.Tensor], bucket: torch.Tensor) -> List[torch.Tensor]:  # noqa: UP006
    index = torch.ops.aten.Int(bucket)
    results: List[torch.Tensor] = []  # noqa: UP006
    for number in range(len(states)):
        results.append(torch.ops.aten.slice(states[number], 1, 0, shapes[index][number][1], 1))
    return results


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 4), nn.Linear(4, 3)

    def forward(self, tokens, mask):
        x = self.embedding(tokens) * mask[:, :, None]
        return {"logits": self.head(x.sum(1) / mask.sum(1, keepdim=True))}


EXAMPLES = [tuple(torch.ones(1, size, dtype=torch.int64) for _ in range(2)) for size in (8, 16)]


def kernel(*_):
    return torch.jit.script(pad)


def bucketed(make, examples=EXAMPLES, *, compiler_workdir=None, **options):
    """Trace with the kernel and these options of the buckets."""
    config = BucketModelConfig(kernel, **options)
    return bucket_model_trace(make, examples, config, compiler_args=FAST, compiler_workdir=compiler_workdir)


@pytest.fixture(scope="module")
def classifier():
    torch.manual_seed(0)
    return Classifier()


def test_kernel_selects_bucket(classifier, tmp_path):
    model = bucketed(lambda: (classifier, {}), compiler_workdir=tmp_path)
    for path in (None, tmp_path / "m.pt"):
        if path is not None:
            torch.jit.save(model, path)
            model = torch.jit.load(path)
        for length in (1, 5, 8, 9, 16):
            tokens, mask = torch.randint(1, 20, (1, length)), torch.ones(1, length, dtype=torch.int64)
            torch.testing.assert_close(model(tokens, mask)["logits"], classifier(tokens, mask)["logits"])
    with open_neff(tmp_path / "graph.neff") as neff:
        program = read_program(neff)
    assert list(program.graphs) == ["bucket_0", "bucket_1"]
    assert len(program.weights) == 3, "weights are shared"


def test_input_beyond_largest_bucket_is_refused(classifier):
    model = bucketed(lambda: (classifier, {}))
    with pytest.raises(RuntimeError):
        model(*(torch.ones(1, 17, dtype=torch.int64) for _ in range(2)))


def test_keywords_go_to_each_bucket(classifier):
    calls = []

    def make(name):
        calls.append(name)
        return classifier, {}

    for kwargs in ({"name": "a"}, [{"name": "a"}, {"name": "b"}]):
        bucketed(make, func_kwargs=kwargs)
    assert calls == ["a", "a", "a", "b"]
    with pytest.raises(ConfigError) as error:
        bucketed(make, func_kwargs=[{"name": "a"}])
    assert error.value.details == {"option": "func_kwargs", "num_buckets": 2}


class Cache(nn.Module):
    """Adds its input to a state of the same shape."""

    def __init__(self, size):
        super().__init__()
        self.register_buffer("state", torch.zeros(1, size))

    def forward(self, x):
        state = self.state + x
        return state * 10, state


def cache(size):
    module = Cache(size)
    return module, {module.state: 1}


FLOATS = [(torch.ones(1, 8),), (torch.ones(1, 16),)]
SIZES = [{"size": 8}, {"size": 16}]


@pytest.mark.parametrize("buffer", [None, [torch.ones(1, 16)]])
def test_buckets_share_largest_state_through_preprocessor(buffer):
    options = {"shared_state_buffer": buffer, "func_kwargs": SIZES}
    model = bucketed(cache, FLOATS, shared_state_buffer_preprocessor=lambda *_: torch.jit.script(views), **options)
    first = 0 if buffer is None else 1
    assert model(torch.ones(1, 8)).tolist() == [[10.0 * (first + 1)] * 8]
    assert model(torch.ones(1, 16)).tolist() == [[10.0 * (first + 2)] * 8 + [10.0 * (first + 1)] * 8]
    assert model(torch.ones(1, 8)).tolist() == [[10.0 * (first + 3)] * 8]


@pytest.mark.parametrize("first", [0.0, 5.0])
def test_states_of_one_shape_are_shared_without_preprocessor(first):
    class Sums(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("state", torch.zeros(1))

        def forward(self, x):
            state = self.state + x.sum()
            return state * 1, state

    def make():
        module = Sums()
        return module, {module.state: 1}

    model = bucketed(make, FLOATS, shared_state_buffer=[torch.full((1,), first)] if first else None)
    assert [model(torch.ones(1, size)).item() - first for size in (3, 16, 8)] == [3, 19, 27]


def test_states_of_different_shapes_need_preprocessor():
    with pytest.raises(ConfigError) as error:
        bucketed(cache, FLOATS, func_kwargs=SIZES)
    assert error.value.details["states"] == ["state float32[1, 8]", "state float32[1, 16]"]


def test_copying_preprocessor_is_refused():
    with raises(ConfigError, bucket=0, states=[0]):
        bucketed(cache, FLOATS, shared_state_buffer_preprocessor=lambda: torch.jit.script(parts), func_kwargs=SIZES)


def test_equal_weights_with_nan_are_shared():
    model = Classifier()
    model.head.weight.data[0, 0] = float("nan")
    traced = bucketed(lambda: (copy.deepcopy(model), {}))
    torch.testing.assert_close(traced(*EXAMPLES[0]), model(*EXAMPLES[0]), equal_nan=True)


def test_different_weights_for_each_bucket_are_refused():
    with pytest.raises(ConfigError) as error:
        bucketed(lambda: (Classifier(), {}))
    assert error.value.details["tensors"] == ["embedding.weight", "head.weight", "head.bias"]


def test_different_outputs_for_each_bucket_are_refused():
    def function(x):
        return (x,) if x.shape[1] == 8 else x

    with raises(ConfigError, structures=[(0,), 0]):
        bucketed(lambda: (function, {}), FLOATS)


def test_invalid_torchscript_and_non_list_are_refused(classifier):
    with raises(ConfigError, option="bucket_kernel"):
        bucket_model_trace(lambda: (classifier, {}), EXAMPLES, BucketModelConfig(lambda: pad))
    with raises(ConfigError, option="example_inputs"):
        bucket_model_trace(lambda: (classifier, {}), torch.rand(1), BucketModelConfig(kernel))
    with pytest.warns(UserWarning, match="2 more arguments are ignored"):
        BucketModelConfig(kernel, 1, 2)

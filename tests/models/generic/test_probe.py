import inspect

from optimum_neuron.errors import CaptureError
from optimum_neuron.models.generic import build, probe_states
from optimum_neuron.upstream.cache_argument import takes_cache
from tests.raising import raises
from tests.tiny import tiny_config


def test_code_that_depends_on_values_is_refused_with_its_line(monkeypatch):
    decoder = build(tiny_config("qwen2"))

    @takes_cache
    def forward(input_ids, cache=None, **kwargs):
        return None if input_ids.sum().item() else 1 / input_ids.max().item()

    monkeypatch.setattr(decoder.model, "forward", forward)
    with raises(CaptureError) as error:
        probe_states(decoder)
    line = inspect.getsourcelines(forward)[1] + 2
    assert error.value.details["source_line"].startswith(f"{__file__}:{line}: return None if input_ids")

"""Keys of torch's caches: a changed option, setting, or generator compiles again, and backends share nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from optimum_neuron.compiler.lower import onednn
from optimum_neuron.compiler.passes import autocast
from optimum_neuron.compiler.rules import judge
from optimum_neuron.device import products
from optimum_neuron.device.dynamo import cache
from optimum_neuron.files.records import hash_of_sources
from tests.device.conftest import host_threads, needs_compiler
from tests.device.dynamo.warm import compiled, loaded_from, lookups, restart, scaled

pytestmark = [needs_compiler, pytest.mark.usefixtures("empty_cache")]

OPTIONS = {
    "target": {"target": "trn1"},
    "auto_cast": {"auto_cast": "matmul"},
    "auto_cast_type": {"auto_cast": "matmul", "auto_cast_type": "fp16"},
    "allow_host_ops": {"allow_host_ops": ["aten::sort"]},
}


@pytest.mark.full(days=2)
def test_other_options_miss():
    x = torch.randn(8, 8)
    compiled(scaled)(x.to("neuron"))
    results = {}
    for name, options in OPTIONS.items():
        restart()
        results[name] = compiled(scaled, **options)(x.to("neuron")).cpu()
        assert (lookups(), counters["inductor"]["fxgraph_cache_hit"]) == ({"miss": 1}, 0), name
        (graph,) = torch.neuron.compile_report().graphs
        assert graph.target.value == options.get("target", "inf2") and graph.loaded_from is None
    for name, options in ({"none": {}} | OPTIONS).items():
        restart()
        result = compiled(scaled, **options)(x.to("neuron")).cpu()
        assert lookups() == {"hit": 1} and torch.equal(result, results.get(name, result)), name
    assert not torch.equal(results["auto_cast"], results["auto_cast_type"])


@pytest.mark.full(days=2)
def test_other_settings_of_process_miss():
    x = torch.randn(8, 8, device="neuron")
    settings = [
        lambda: products.use("blas"),
        lambda: products.use("onednn"),
        lambda: host_threads(torch.get_num_threads() + 1),
        lambda: torch.autocast("neuron", dtype=torch.bfloat16),
        lambda: torch.autocast("neuron", dtype=torch.float16),
    ]
    results = []
    for expected in ("miss", "hit"):
        for setting in settings:
            restart()
            with setting():
                results.append(compiled(scaled)(x).cpu())
            assert lookups() == {expected: 1}
    for cold, warm in zip(results[:5], results[5:], strict=True):
        assert torch.equal(cold, warm) and cold.dtype is warm.dtype


def test_updated_code_misses(monkeypatch):
    x = torch.randn(8, 8, device="neuron")
    for key, expected in (("before", "miss"), ("before", "hit"), ("after", "miss"), ("after", "hit")):
        restart()
        monkeypatch.setattr(cache, "generator_hash", lambda key=key: key)
        compiled(scaled)(x)
        assert lookups() == {expected: 1}
        assert counters["inductor"]["fxgraph_cache_miss"] == (expected == "miss")


def test_hash_covers_code_generators(tmp_path):
    hashed = {path for name in cache._GENERATORS for path in (cache._PACKAGE / name).rglob("*.py")}
    for module in (cache, onednn, autocast, judge, products):
        assert Path(module.__file__) in hashed
    for name in ("lower/onednn.py", "device/products.py"):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text("x = 1")
    names = ("lower", "device")
    hashes = [hash_of_sources(tmp_path, names)]
    (tmp_path / "lower/onednn.py").write_text("x = 2")
    hashes.append(hash_of_sources(tmp_path, names))
    (tmp_path / "lower/onednn.py").rename(tmp_path / "lower/other.py")
    hashes.append(hash_of_sources(tmp_path, names))
    assert len(set(hashes)) == 3 and hashes[-1] == hash_of_sources(tmp_path, names)


@pytest.mark.parametrize("backends", [("inductor", "neuron"), ("neuron", "inductor")])
def test_inductor_backend_has_a_separate_cache(backends):
    x = torch.randn(8, 8)
    for backend in backends:
        restart()
        torch.testing.assert_close(torch.compile(scaled, backend=backend)(x), scaled(x), atol=1e-5, rtol=1e-5)
        assert (lookups(), counters["inductor"]["fxgraph_cache_hit"]) == ({"miss": 1}, 0)
    assert loaded_from() == ([] if backends[-1] == "inductor" else [None])


def test_host_permission_is_part_of_the_key():
    def sorts(x):
        return torch.sort(x).values + 1

    x = torch.tensor([2.0, 1.0], device="neuron")
    assert compiled(sorts, allow_host_ops=["aten::sort"])(x).tolist() == [2.0, 3.0]
    restart()
    with pytest.raises(Exception, match="NCC_EVRF001"):
        compiled(sorts)(x)


def test_tag_of_user_is_kept():
    x = torch.randn(8, 8, device="neuron")
    for tag, expected in (("", "miss"), ("mine", "miss"), ("mine", "hit")):
        restart()
        with torch.compiler.config.patch(cache_key_tag=tag):
            compiled(scaled)(x)
            assert torch.compiler.config.cache_key_tag == tag
        assert lookups() == {expected: 1}

import json

import pytest

KERNEL = """
from optimum_neuron.nki import isa as nisa, jit, language as nl

@jit
def scale(x, factor):
    tile, out = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.activation(tile, nl.copy, tile, scale=factor)
    nl.store(out, tile)
    return out
"""


@pytest.fixture
def nki(cli, tmp_path):
    """Run the command on a kernel of a file."""
    path = tmp_path / "some_kernels.py"
    path.write_text(KERNEL, encoding="utf-8")
    return lambda name, *words: cli("neuron", "nki", f"{path}:{name}", *words)


def test_engines_memory_and_advice(nki):
    result = nki("scale", "128x64:bfloat16", "0.5")
    assert (result.code, result.stderr) == (0, "")
    text = result.stdout
    assert text.startswith("kernel scale on trn3: ") and "bound by waiting" in text
    assert "sbuf     128" in text and "DMA size" in text and "some_kernels.py:6" in text


def test_json_quiet_and_trace(nki, tmp_path):
    trace = tmp_path / "trace.json"
    data = nki("scale", "128x64", "2", "--json", "--perfetto", str(trace)).json
    assert data["num_instructions"] == 3 and data["memory"][0]["peak"] == 256
    assert json.loads(trace.read_text())["otherData"]["simulated"]
    assert nki("scale", "128x64", "2", "--quiet").stdout.endswith(" us (simulated)\n")


@pytest.mark.parametrize("words", [("missing", "128x64"), ("scale", "128x64", "half"), ("scale", "128x64:half9", "1")])
def test_kernel_or_argument_that_is_not_one(nki, words):
    result = nki(*words)
    assert (result.code, result.stdout) == (1, "") and "error: " in result.stderr


def test_broken_rule_names_the_line(nki):
    result = nki("scale", "256x64", "1.0")
    assert result.code == 1 and "some_kernels.py:6" in result.stderr

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

@jit
def scale_by_vector(x, factor):
    tile, out = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.tensor_scalar(tile, tile, nl.multiply, factor)
    nl.store(out, tile)
    return out

@jit
def scale_parts(x, columns=128, engine_of_loads="dma"):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for begin in range(0, x.shape[1], columns):
        nl.store(out[:, begin : begin + columns], nl.load(x[:, begin : begin + columns]))
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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("scales", "128x64", "1"), "scale"),
        (("scale", "128x64", "half"), "half"),
        (("scale", "128x64:half9", "1"), "half9"),
        (("scale", "128x64"), "(x, factor)"),
    ],
)
def test_kernel_or_argument_that_is_not_one(nki, words, says):
    result = nki(*words)
    assert (result.code, result.stdout) == (1, "") and "error: " in result.stderr and says in result.stderr


def test_file_that_cannot_be_imported(cli, tmp_path):
    (tmp_path / "broken.py").write_text("import no_such_module", encoding="utf-8")
    result = cli("neuron", "nki", f"{tmp_path}/broken.py:kernel")
    assert result.code == 1 and "no_such_module" in result.stderr


def test_broken_rule_names_the_line(nki):
    result = nki("scale", "256x64", "1.0")
    assert result.code == 1 and "some_kernels.py:6" in result.stderr


def test_two_versions_side_by_side(nki, tmp_path):
    page = tmp_path / "page.html"
    words = ("128x64", "2.0", "--against", f"{tmp_path}/some_kernels.py:scale_by_vector", "--html", str(page))
    data = nki("scale", *words, "--json").json
    assert data["difference"] == 0 and data["before"]["name"] == "scale" and data["after"]["name"] == "scale_by_vector"
    assert data["lines"][0]["moved_us"].keys() == {"vector", "scalar"}
    text = nki("scale", *words).stdout
    assert "nisa.tensor_scalar" in text and "some_kernels.py:13" in text and "nisa.tensor_scalar" in page.read_text()
    other = nki("scale_parts", "128x512", "--against", f"{tmp_path}/some_kernels.py:scale")
    assert other.code == 1 and "factor" in other.stderr


def test_versions_have_their_own_modules_beside_them(cli, tmp_path):
    kernel = KERNEL.replace("scale=factor", "scale=factor * sizes.FACTOR")
    files = []
    for factor in (1.0, 2.0):
        folder = tmp_path / f"version_{factor}"
        folder.mkdir()
        (folder / "sizes.py").write_text(f"FACTOR = {factor}", encoding="utf-8")
        files.append(folder / "kernels.py")
        files[-1].write_text(f"import sizes\n{kernel}", encoding="utf-8")
    words = (f"{files[0]}:scale", "128x64", "1.0", "--against", f"{files[1]}:scale")
    assert cli("neuron", "nki", *words, "--json").json["difference"] == 1.0


def test_tuning(nki):
    result = nki(
        "scale_parts", "128x512", "--tune", "columns=128,512", "--tune", "engine_of_loads='dma','dma'", "--json"
    )
    assert result.json["choice"]["value"] == {"columns": 512, "engine_of_loads": "dma"}
    assert (
        len(result.json["trials"]) == 4
        and "best: columns=512" in nki("scale_parts", "128x512", "--tune", "columns=128,512").stdout
    )


@pytest.mark.parametrize(
    "words",
    [
        ("--tune", "columns"),
        ("--tune", "columns=12x"),
        ("--tune", "colums=1"),
        ("--seconds", "3"),
        ("--tune", "columns=1", "--against", "some.py:kernel"),
    ],
)
def test_versions_that_are_none(nki, words):
    result = nki("scale_parts", "128x512", *words)
    assert result.code and result.stdout == "" and "error: " in result.stderr

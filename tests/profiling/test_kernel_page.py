"""The page of a kernel, drawn by Chromium: a click on a line marks its instructions."""

import shutil
import subprocess

import pytest
import torch

from optimum_neuron.nki import analyze, isa as nisa, language as nl
from optimum_neuron.profiling import kernel_page

CLICK = """<script>
document.querySelector("#source-0 tr[data-group]").click();
</script>"""


def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
    nl.store(out, tile)
    return out


def double_in_two_steps(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for begin in (0, 32):
        nl.store(out[:, begin : begin + 32], nl.multiply(nl.load(x[:, begin : begin + 32]), 2.0))
    return out


@pytest.fixture(scope="module")
def analyses():
    x = torch.ones(128, 64)
    return analyze(double, x), analyze(double_in_two_steps, x)


def test_page_of_one_and_of_two_kernels_has_their_source(analyses):
    one, two = kernel_page(analyses[0]), kernel_page(*analyses)
    assert "nisa.tensor_scalar(tile, tile" in one and "double_in_two_steps" not in one
    assert (
        "for begin in (0, 32):" in two and "times as fast" in two and "http" not in two.replace("http://www.w3.org", "")
    )


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on this machine")
def test_browser_marks_the_instructions_of_a_line(analyses, tmp_path):
    path = tmp_path / "kernel.html"
    path.write_text(kernel_page(*analyses).replace("</body>", f"{CLICK}</body>"))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom"]
    result = subprocess.run(
        ["chromium", *flags, f"--user-data-dir={tmp_path / 'browser'}", path.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert result.stdout.count("<svg") == 4 and "Uncaught" not in result.stderr
    assert result.stdout.count('class="b-DMA marked"') == 1 and result.stdout.count('class="marked"') == 1

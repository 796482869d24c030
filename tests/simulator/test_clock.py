"""The clock of the cores: the time that a run adds to a core matches the estimate of the same program."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest
import torch

from optimum_neuron import NeuronModelForCausalLM, NeuronModelForSequenceClassification
from optimum_neuron.simulator import constants, core_usage, work_of_call
from tests.encoders import save_tiny_encoder


def busy(model):
    """Busy time and calls of the core that a model is on."""
    (core_id,) = model.loaded.claim.core_ids
    (core,) = [c for c in core_usage() if (c.instance, c.core_id) == (model.loaded.claim.instance.name, core_id)]
    return core.busy_us, core.num_calls


def test_decoder_profile_matches_estimate(export_folder):
    model = NeuronModelForCausalLM.from_pretrained(export_folder)
    report = model.estimate(sequence_length=48, output_length=24)
    host = constants().hosts["nxd-inference"]
    prepare_ms = host.prefill_ms.get("inf2", host.prefill_ms[""])
    before = busy(model)
    prompt = torch.randint(3, 90, (2, 20))
    tokens = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=10, min_new_tokens=10, do_sample=False
    )
    assert tokens.shape == (2, 30)
    after = busy(model)
    assert model.loaded.tracks[0].num_calls == {"prefill_48": 1, "decode_48": 9}
    prefill_ms = report.ttft_ms.value - prepare_ms
    read_ms = (
        1e3 * work_of_call(model.loaded.program, "decode_48", "none").total.host_bytes / constants().copy_bytes_per_s
    )
    decode_ms = report.tpot_ms.value - host.token_ms - 2 * host.row_ms - read_ms
    assert after[1] - before[1] == 10
    assert after[0] - before[0] == pytest.approx(1e3 * (prefill_ms + 9 * decode_ms), rel=1e-9)


@pytest.mark.parametrize("auto_cast", ["none", "matmul"])
def test_encoder_profile_matches_estimate(tmp_path, auto_cast):
    folder = save_tiny_encoder(tmp_path / "bert", "bert", "text-classification")
    options = {"batch_size": 2, "sequence_length": 16, "optlevel": "1", "auto_cast": auto_cast}
    model = NeuronModelForSequenceClassification.from_pretrained(folder, export=True, **options)
    report = model.estimate()
    (graph,) = report.parts_ms
    host_ms = report.parts_ms[graph]["host"]
    assert model.loaded.tracks[0].num_calls == {}  # the validation of the export is no use of the core
    before = busy(model)
    for _ in range(3):
        model(input_ids=torch.ones(2, 16, dtype=torch.long))
    after = busy(model)
    assert after[1] - before[1] == 3
    assert after[0] - before[0] == pytest.approx(3e3 * (report.latency_ms.value - host_ms), rel=1e-9)


def test_work_is_counted_once_and_freed_with_its_program(export_folder):
    model = NeuronModelForCausalLM.from_pretrained(export_folder)
    program = model.loaded.program
    assert work_of_call(program, "decode_48", "none") is work_of_call(program, "decode_48", "none")
    from optimum_neuron.simulator import compiled

    key = (id(program), "decode_48", "none")
    assert compiled._works[key][0]() is program
    model.loaded.close()
    del model, program
    gc.collect()
    assert key not in compiled._works


@pytest.mark.full(days=2)
def test_running_program_imports_no_simulator(export_folder, monkeypatch, tmp_path):
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path))  # models of other tests in this process hold its cores
    program = f"""
import sys
import torch
from optimum_neuron import NeuronModelForCausalLM
model = NeuronModelForCausalLM.from_pretrained({str(export_folder)!r})
model.generate(torch.ones(2, 4, dtype=torch.long), max_new_tokens=2, do_sample=False)
print([name for name in sys.modules if name.startswith("optimum_neuron.simulator")])
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"

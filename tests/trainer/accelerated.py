"""A loop of accelerate on a model, for tests; run as a program, in the processes of `torchrun`, replicated and ZeRO-1.

`torchrun --nproc_per_node 2 -m tests.trainer.accelerated FOLDER` trains FOLDER/model and writes FOLDER/results.json.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState


def loop(accelerator: Any, whole: Any, num_steps: int = 4) -> tuple[list[float], list[float], Any, Any]:
    """Run a loop as in accelerate's documentation; return losses, norms, the model, and the optimizer."""
    model = copy.deepcopy(whole)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    rows = torch.stack([torch.arange(16) + row for row in range(2 * num_steps)])
    loader = torch.utils.data.DataLoader(rows, batch_size=2 // accelerator.num_processes)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    losses, norms = [], []
    for ids in loader:
        assert ids.device.type == accelerator.device.type
        loss = model(input_ids=ids, labels=ids).loss
        accelerator.backward(loss)
        norms.append(float(accelerator.clip_grad_norm_(model.parameters(), 1.0)))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(float(accelerator.gather(loss.detach().reshape(1)).mean()))
    return losses, norms, model, optimizer


def main(folder: Path) -> None:
    from transformers import LlamaForCausalLM

    from optimum_neuron.trainer import NeuronAccelerator

    model = LlamaForCausalLM.from_pretrained(folder / "model")
    results = []
    for zero_1 in (False, True):
        AcceleratorState._reset_state()
        # By default, accelerate steps a schedule once for each process.
        accelerator = NeuronAccelerator(zero_1=zero_1, step_scheduler_with_optimizer=False)
        losses, norms, _, optimizer = loop(accelerator, model)
        states = [value for state in optimizer.state.values() for value in state.values()]
        local = [value.to_local() if hasattr(value, "to_local") else value for value in states]
        num_states = sum(value.numel() for value in local if isinstance(value, torch.Tensor) and value.dim())
        device = accelerator.device.type
        results.append({"losses": losses, "norms": norms, "num_states": num_states, "device": device})
    if accelerator.is_main_process:
        (folder / "results.json").write_text(json.dumps(results))
    accelerator.end_training()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

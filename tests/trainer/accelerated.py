"""Processes of a test of `NeuronAccelerator` run `torchrun -m tests.trainer.accelerated FOLDER MODEL [zero_1]`.

It trains a model of a folder on halves of a batch, and rank 0 writes the mean losses and norms of gradients.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch


def main(folder: Path, model_folder: str, zero_1: bool) -> None:
    from transformers import LlamaForCausalLM

    from optimum_neuron.trainer.accelerator import NeuronAccelerator

    accelerator = NeuronAccelerator(zero_1=zero_1)
    model = LlamaForCausalLM.from_pretrained(model_folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rows = torch.stack([torch.arange(16) + row for row in range(8)])
    loader = torch.utils.data.DataLoader(rows, batch_size=2 // accelerator.num_processes)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses, norms = [], []
    for ids in loader:
        loss = model(input_ids=ids, labels=ids).loss
        accelerator.backward(loss)
        norms.append(float(accelerator.clip_grad_norm_(model.parameters(), 1.0)))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(accelerator.gather(loss.detach().reshape(1)).mean()))
    states = sum(
        value.to_local().numel() if hasattr(value, "to_local") else value.numel()
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, torch.Tensor) and value.dim()
    )
    if accelerator.is_main_process:
        told = {"losses": losses, "norms": norms, "states": states, "device": accelerator.device.type}
        (folder / f"{accelerator.num_processes}-{zero_1}.json").write_text(json.dumps(told))
    accelerator.end_training()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:] == ["zero_1"])

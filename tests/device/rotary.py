"""A small transformer with complex rotary positions, trained by two processes: the layout of TorchTitan's models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

WIDTH, HEADS, LENGTH, VOCABULARY = 16, 2, 8, 32


class Block(nn.Module):
    """Attention and feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.norm = nn.RMSNorm(WIDTH)

    def forward(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        # With tensor parallelism a process has some of the heads.
        query, key, value = (
            layer(x).unflatten(-1, (-1, WIDTH // HEADS)) for layer in (self.query, self.key, self.value)
        )
        query, key = turned(query, turns), turned(key, turns)
        heads = (part.transpose(1, 2) for part in (query, key, value))
        attended = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.output(attended)
        return x + self.down(F.silu(self.up(self.norm(x))))


def turned(heads: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(heads.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns[:, None]).flatten(3)


class Model(nn.Module):
    """Embedding, two blocks, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.layers = nn.ModuleList(Block() for _ in range(2))
        angles = torch.outer(torch.arange(LENGTH), 0.5 ** torch.arange(WIDTH // HEADS // 2))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.turns)
        return self.head(x)


def shard(model: Model, device: str) -> None:
    """FSDP2 over two processes."""
    mesh = init_device_mesh(device, (2,))
    for layer in (*model.layers, model):
        fully_shard(layer, mesh=mesh)


def split(model: Model, device: str) -> None:
    """Tensor parallelism of two processes."""
    mesh = init_device_mesh(device, (2,))
    columns, rows = ("query", "key", "value", "up"), ("output", "down")
    plan = dict.fromkeys(columns, ColwiseParallel()) | dict.fromkeys(rows, RowwiseParallel())
    for layer in model.layers:
        parallelize_module(layer, mesh, plan)
    parallelize_module(model, mesh, {"head": ColwiseParallel(output_layouts=Replicate())})


def keeping_products() -> Any:
    """Contexts of checkpoints that keep results of products, and repeat the rest."""

    def policy(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        is_product = operator is torch.ops.aten.mm.default
        return CheckpointPolicy.MUST_SAVE if is_product else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def compile_layers(model: Model, compiled: Callable[[nn.Module], nn.Module], *, repeats: bool) -> None:
    """Compile each layer, as TorchTitan does; its backward may repeat everything but products."""
    for number, layer in enumerate(model.layers):
        model.layers[number] = compiled(checkpoint_wrapper(layer, context_fn=keeping_products) if repeats else layer)


def losses(device: str, rank: int, prepare: Callable[[Model], None], *, is_split: bool = False) -> list[float]:
    """Train on a device, each process on its rows unless the model is split; losses of three steps of all processes."""
    torch.manual_seed(0)
    tokens = torch.randint(VOCABULARY, (4, LENGTH + 1))
    model = Model().to(device)
    prepare(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)  # some are DTensor, some are not
    own = (tokens if is_split else tokens.chunk(2)[rank]).to(device)
    result = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(own[:, :-1]).flatten(0, 1), own[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        result.append(loss.item())
    return result

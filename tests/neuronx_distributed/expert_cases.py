"""Cases of experts for the processes of `test_ranks.py`; a mixture in one process is the reference.

`test_experts.py` compares that one with transformers' Mixtral.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from optimum_neuron.errors import ConfigError
from optimum_neuron.neuronx_distributed import (
    attributes,
    checkpoint,
    checkpointing,
    configuration,
    expert_ranks,
    expert_regions,
    experts,
    mixture,
    parallel_state,
    routers,
    token_shuffling,
)

from .ranks import BATCH, CLOSE, HIDDEN, LENGTH, degrees, on

STATE = parallel_state


def mixtures(device: str, rank: int) -> None:
    def layer(**options: Any) -> mixture.MoE:
        torch.manual_seed(2)
        router = routers.RouterTopK(4, 2, HIDDEN)
        options.setdefault("return_router_logits", True)
        mlps = experts.ExpertMLPs(4, 2, HIDDEN, 6, "silu", True, None, normalize_top_k_affinities=True)
        return mixture.MoE(router, mlps, **options)

    torch.manual_seed(3)
    tokens, weights = torch.randn(LENGTH, BATCH, HIDDEN), torch.randn(LENGTH, BATCH, HIDDEN)
    reference, inputs = layer(), tokens.clone().requires_grad_()
    expected, logits = reference(inputs)
    (expected * weights).sum().backward()
    with degrees(tensor_model_parallel_size=2):
        for by_sequence in (False, True):
            model = layer(sequence_parallel_enabled=by_sequence)
            mine = tokens.chunk(2)[rank] if by_sequence else tokens
            mine = mine.clone().requires_grad_()
            output, own_logits = model(mine)
            (output * (weights.chunk(2)[rank] if by_sequence else weights)).sum().backward()
            place = slice(rank * LENGTH // 2, (rank + 1) * LENGTH // 2) if by_sequence else slice(None)
            torch.testing.assert_close(output, expected[place], **CLOSE)
            torch.testing.assert_close(own_logits, logits, **CLOSE)
            torch.testing.assert_close(mine.grad, inputs.grad[place], **CLOSE)
            for name, one in model.named_parameters():
                other = reference.get_parameter(name)
                part = attributes.part_of(other.grad, one, rank)
                torch.testing.assert_close(one.grad, part, **CLOSE)


def limited(capacity: float | None = None, **options: Any) -> mixture.MoE:
    torch.manual_seed(2)
    mlps = experts.ExpertMLPs(4, 2, HIDDEN, 6, "silu", True, capacity, normalize_top_k_affinities=True, bias=True)
    return mixture.MoE(routers.RouterTopK(4, 2, HIDDEN), mlps, return_router_logits=True, **options)


def divided_experts(device: str, rank: int) -> None:
    """Ranks have other tokens and other experts: results and gradients of one process, with dropped tokens too."""
    torch.manual_seed(3)
    tokens, weights = torch.randn(2, LENGTH, HIDDEN), torch.randn(2, LENGTH, HIDDEN)
    for capacity in (None, 1.0):
        reference = limited(capacity)
        inputs = tokens.clone().requires_grad_()
        expected = torch.stack([reference(one.unsqueeze(0))[0][0] for one in inputs])  # each rank drops its own
        (expected * weights).sum().backward()
        with degrees(expert_model_parallel_size=2):
            assert STATE.EXPERT.size() == 2 and STATE.DATA.size() == 2 and STATE.EXPERT_DATA.size() == 1
            model = on(device, limited(capacity))
            mine = on(device, tokens[rank : rank + 1].clone()).requires_grad_()
            output, _ = model(mine)
            (output * on(device, weights[rank : rank + 1])).sum().backward()
            torch.testing.assert_close(output.cpu(), expected[rank : rank + 1], **CLOSE)
            torch.testing.assert_close(mine.grad.cpu(), inputs.grad[rank : rank + 1], **CLOSE)
            for name, one in model.named_parameters():
                if attributes.is_of_expert(one):
                    part = attributes.part_of(reference.get_parameter(name).grad, one, 0)
                    torch.testing.assert_close(one.grad.cpu(), part, **CLOSE)


def sent_tokens(device: str, rank: int) -> None:
    whole = torch.arange(4 * 6 * 2.0).reshape(4, 6, 2)
    with degrees(expert_model_parallel_size=2):
        mine = on(device, whole[:, 3 * rank : 3 * rank + 3].contiguous()).requires_grad_()
        theirs = expert_regions.enter_expert_parallel_region(mine, scatter_gather=False)
        expected = whole[2 * rank : 2 * rank + 2].unflatten(1, (2, 3))
        torch.testing.assert_close(theirs.cpu(), expected, rtol=0, atol=0)
        back = expert_regions.exit_expert_parallel_region(theirs * 2, scatter_gather=False)
        torch.testing.assert_close(back.cpu(), mine.cpu() * 2, rtol=0, atol=0)
        (back * mine.detach()).sum().backward()
        torch.testing.assert_close(mine.grad.cpu(), mine.detach().cpu() * 2, rtol=0, atol=0)
        assert expert_ranks.get_expert_parallel_rank_from_global_rank(rank) == rank
    with degrees():
        STATE.initialize_token_shuffle_group(2)
        mine = on(device, whole + 100 * rank).requires_grad_()
        shuffled, order = token_shuffling.token_shuffle(mine, seed=4)
        assert int((shuffled.detach().cpu() >= 100).sum()) == whole.numel() // 2  # half of the tokens is of each rank
        back = token_shuffling.token_unshuffle(shuffled, order)
        torch.testing.assert_close(back.cpu(), mine.cpu(), rtol=0, atol=0)
        model = on(device, limited(0.5, token_shuffle_group_size=2, token_shuffle_seed=1))
        tokens = on(device, torch.randn(2, 4, HIDDEN))
        model(tokens)[0].sum().backward()


def bad_experts(device: str, rank: int) -> None:
    with degrees(expert_model_parallel_size=2):
        with pytest.raises(ConfigError) as error:
            experts.ExpertMLPs(3, 1, HIDDEN, 6, "silu", True, None)
        assert error.value.details["num_experts"] == 3
        model = on(device, limited())
        with pytest.raises(ConfigError) as error:  # on both ranks, and none waits
            model(on(device, torch.randn(1, 3 + rank, HIDDEN)))
        assert error.value.details["values"] == [3, 4]
        with pytest.raises(ConfigError):
            checkpointing.save({}, "never")
    with pytest.raises(ConfigError):
        STATE.initialize_model_parallel(expert_model_parallel_size=3)
    with pytest.raises(ConfigError):
        STATE.initialize_model_parallel(expert_model_parallel_size=1 + rank)


class Routed(nn.Module):
    """A mixture between two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first, self.mixture, self.last = nn.Linear(HIDDEN, HIDDEN), limited(), nn.Linear(HIDDEN, 1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.last(self.mixture(self.first(tokens))[0]).square().mean()


def steps(device: str, model: Any, optimizer: Any, tokens: torch.Tensor) -> list[tuple[float, float]]:
    found = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(on(device, tokens))
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone() / STATE.ZERO1.size()
        torch.distributed.all_reduce(mean, group=STATE.ZERO1.group())
        found.append((mean.item(), optimizer.grad_norm.item()))
    return found


def trained_experts(device: str, rank: int, folder: Path) -> None:
    """Losses and norms of one process, with tensor parallelism in four, with ZeRO-1, and from a checkpoint."""
    world = torch.distributed.get_world_size()
    tokens = torch.randn(4, LENGTH, HIDDEN, generator=torch.Generator().manual_seed(6))
    make = functools.partial(configuration.initialize_parallel_optimizer, optimizer_class=torch.optim.AdamW)
    config = configuration.neuronx_distributed_config()  # every rank has all tokens: as in one process
    model = configuration.initialize_parallel_model(config, Routed)
    expected = steps(device, model, make(config, parameters=model.parameters(), lr=1e-2), tokens)
    STATE.destroy_model_parallel()
    zeros = (False, True) if device == "xla" else (False,)
    for zero, context in [(zero, context) for zero in zeros for context in (1, 2)]:
        config = configuration.neuronx_distributed_config(
            expert_parallel_size=2,
            context_parallel_size=context,  # tokens do not see each other, so ranks may have any of them
            tensor_parallel_size=world // 2 if not zero else 1,
            optimizer_config={"zero_one_enabled": zero, "grad_clipping": True, "max_grad_norm": 1.0},
        )
        model = configuration.initialize_parallel_model(config, Routed)
        optimizer = make(config, parameters=model.parameters(), lr=1e-2)
        mine = tokens.chunk(STATE.ZERO1.size())[STATE.ZERO1.rank()]
        assert steps(device, model, optimizer, mine) == [pytest.approx(pair, rel=1e-5) for pair in expected]
        checkpoint.save_checkpoint(folder, f"zero_{zero}", model=model, optimizer=optimizer)
        rest = steps(device, model, optimizer, mine)
        again = configuration.initialize_parallel_model(config, Routed)
        optimizer = make(config, parameters=again.parameters(), lr=1e-2)
        checkpoint.load_checkpoint(folder, f"zero_{zero}", model=again, optimizer=optimizer)
        assert steps(device, again, optimizer, mine) == rest
        STATE.destroy_model_parallel()
        with degrees(), pytest.raises(ConfigError):  # other degrees
            checkpoint.load_checkpoint(folder, f"zero_{zero}", model=again)

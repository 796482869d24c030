"""Decoders whose cache is a pool of blocks give transformers' logits, chunk by chunk and step by step."""

import dataclasses

import pytest
import torch

from optimum_neuron.models import build_decoder, families
from tests.models.steps import NUM_TOKENS, Pair, pair
from tests.models.test_families import FAMILIES
from tests.tiny import VOCABULARY

BLOCK_SIZE, NUM_BLOCKS = 4, 11
TABLES = torch.tensor([[7, 2, 9, 4], [1, 10, 3, 6]])
"""Blocks of two rows, in no order."""

WITH_OTHER_STATES = {"lfm2", "qwen3_next"}
CASES = [(name, *next(iter(FAMILIES[name].values()))) for name in families() if name not in WITH_OTHER_STATES]
CASES += [("llama", "mistral", {"sliding_window": 4}), ("generic", "gemma3_text", {"sliding_window": 4})]
CASES += [("generic", "llama", {})]


def paged(model_type: str, family: str, overrides: dict) -> Pair:
    """A decoder with blocks, and the transformers model with the same weights."""
    models = pair(model_type, family=family, **overrides)
    decoder = build_decoder(
        models.original.config, dtype="float32", family=family, num_tokens=NUM_TOKENS, is_paged=True
    )
    return dataclasses.replace(models, family=decoder)


@pytest.mark.parametrize(("family", "model_type", "overrides"), CASES)
def test_chunks_and_steps_give_the_logits_of_transformers(family, model_type, overrides):
    models = paged(model_type, family, overrides)
    ids = torch.randint(3, VOCABULARY, (2, NUM_TOKENS), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = models.original(ids).logits
    # Blocks have had other tokens before.
    pools = [torch.ones(tensor.shape(NUM_BLOCKS, BLOCK_SIZE)) for state in models.family.states for tensor in state]
    done = torch.zeros(2, dtype=torch.long)
    for num_new in (torch.tensor([6, 5]), torch.tensor([3, 6]), torch.tensor([1, 1]), torch.tensor([0, 1])):
        positions = (done[:, None] + torch.arange(int(num_new.max()))).clamp(max=NUM_TOKENS - 1)
        options = {"num_slots": NUM_TOKENS, "table_BM": TABLES, "num_new_B": num_new}
        logits = models.run(ids.gather(1, positions), positions, pools, **options)
        for row, number in enumerate(num_new.tolist()):
            found, expected = logits[row, :number], wanted[row, done[row] : done[row] + number]
            torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)
        done = done + num_new
    unused = [block for block in range(1, NUM_BLOCKS) if block not in TABLES]
    assert all(bool((pool[unused] == 1).all()) for pool in pools)

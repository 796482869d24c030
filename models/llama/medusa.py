"""Recipe: train Medusa heads of SmolLM2 in minutes, and let them propose tokens on a simulated NeuronCore.

    python models/llama/medusa.py

Each head begins as the model's own head behind a residual layer that adds nothing. It learns the model's answers about
nouns of WordNet, as the EAGLE-3 draft of `eagle3.py` does; nouns that are asked in the end are held out. Only the rows
of tokens that occur in answers are trained. The folder --output has the published format of Medusa heads.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from eagle3 import answers, questions
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.checkpoints import resolve_model
from optimum_neuron.modeling import MedusaHeads


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="folder, id on the Hub, or name that neuron fetch knows")
    parser.add_argument("--output", type=Path, default=Path("medusa_out"), help="folder of the heads")
    parser.add_argument("--num_words", type=int, default=320, help="nouns whose answers the heads learn from")
    parser.add_argument("--num_held_out", type=int, default=8, help="nouns that are asked in the end")
    parser.add_argument("--max_new_tokens", type=int, default=32, help="tokens of an answer")
    parser.add_argument("--max_steps", type=int, default=300, help="steps of training")
    parser.add_argument("--batch_size", type=int, default=256, help="tokens of a step")
    parser.add_argument("--learning_rate", type=float, default=1e-3, help="at its highest")
    parser.add_argument("--num_heads", type=int, default=3, help="tokens that are guessed at once")
    parser.add_argument("--sequence_length", type=int, default=128, help="tokens of question and answer, at most")
    parser.add_argument("--optlevel", choices=("1", "2", "3"), default="2", help="1 starts at once, 2 runs faster")
    return parser.parse_args()


class Head(nn.Module):
    """One Medusa head for the tokens that occur in answers."""

    def __init__(self, rows_VD: torch.Tensor) -> None:
        super().__init__()
        width = rows_VD.shape[1]
        self.linear, self.rows = nn.Linear(width, width), nn.Parameter(rows_VD.clone())
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x_ND: torch.Tensor) -> torch.Tensor:
        """Return logits of these tokens."""
        return (x_ND + F.silu(self.linear(x_ND))) @ self.rows.T


@torch.no_grad()
def examples(target: Any, rows: list[tuple[torch.Tensor, int]], num_heads: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states behind the tokens of answers, and for each the tokens that the heads shall guess."""
    states, guesses = [], []
    for ids_T, begin in rows:
        # The state at a place gives the next token; head 0 guesses the one behind that.
        num_places = len(ids_T) - begin - num_heads
        if num_places > 0:
            hidden_TD = target.model(ids_T[None]).last_hidden_state[0]
            states.append(hidden_TD[begin - 1 : begin - 1 + num_places])
            guesses.append(ids_T[begin + 1 :].unfold(0, num_heads, 1)[:num_places])
    return torch.cat(states), torch.cat(guesses)


def train(target: Any, tokenizer: Any, texts: list[str], args: argparse.Namespace) -> dict[str, torch.Tensor]:
    """Train heads on the model's answers, and return them under their published names."""
    states_ND, guesses_NH = examples(target, answers(target, tokenizer, texts, args), args.num_heads)
    tokens_V, places = guesses_NH.unique(return_inverse=True)
    all_rows = target.lm_head.weight.detach()
    heads = nn.ModuleList(Head(all_rows[tokens_V]) for _ in range(args.num_heads))
    optimizer = torch.optim.AdamW(heads.parameters(), lr=args.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.learning_rate, total_steps=args.max_steps + 1)
    losses = []
    for step in range(args.max_steps):
        batch = torch.randint(len(states_ND), (args.batch_size,))
        parts = [F.cross_entropy(head(states_ND[batch]), places[batch, number]) for number, head in enumerate(heads)]
        loss = torch.stack(parts).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if (step + 1) % max(1, args.max_steps // 5) == 0:
            print(f"step {step + 1}: loss {sum(losses) / len(losses):.2f}", flush=True)
            losses.clear()
    tensors = {}
    for number, head in enumerate(heads):
        tensors[f"{number}.0.linear.weight"] = head.linear.weight.detach()
        tensors[f"{number}.0.linear.bias"] = head.linear.bias.detach()
        tensors[f"{number}.1.weight"] = all_rows.index_copy(0, tokens_V, head.rows.detach())
    return tensors


def main() -> None:
    """Train, save, load, and ask."""
    args = arguments()
    torch.manual_seed(0)
    folder, started = resolve_model(args.model).value, time.perf_counter()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    target = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    texts = questions(args.num_held_out + args.num_words)
    tensors = train(target, tokenizer, texts[args.num_held_out :], args)
    args.output.mkdir(parents=True, exist_ok=True)
    save_file(tensors, args.output / "medusa_lm_head.safetensors")
    print(f"trained {args.num_heads} heads in {time.perf_counter() - started:.0f} s", flush=True)

    options = {"sequence_length": args.sequence_length, "torch_dtype": "float32", "optlevel": args.optlevel}
    model = NeuronModelForCausalLM.from_pretrained(
        folder, export=True, speculation=True, extend_length=args.num_heads + 1, **options
    )
    heads = MedusaHeads.from_pretrained(args.output, model)
    num_same = num_checks = num_candidates = num_accepted = 0
    for text in texts[: args.num_held_out]:
        chat = [{"role": "user", "content": text}]
        inputs = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True, return_tensors="pt")
        settings = {"max_new_tokens": args.max_new_tokens, "do_sample": False}
        drafted = model.generate(**inputs, **settings, assistant_model=heads)
        report = model.last_speculation
        num_same += torch.equal(drafted, model.generate(**inputs, **settings))
        num_checks, num_accepted = num_checks + report.num_checks, num_accepted + report.num_accepted
        num_candidates += report.num_candidates
    print(f"held-out questions: {num_same} of {args.num_held_out} answers as without heads")
    print(f"{num_accepted / max(num_candidates, 1):.0%} of {num_candidates} candidates accepted, ", end="")
    print(f"{1 + num_accepted / max(num_checks, 1):.2f} tokens per call of the model")


if __name__ == "__main__":
    main()

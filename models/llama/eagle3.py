"""Recipe: train an EAGLE-3 draft of SmolLM2 in minutes, and let it propose tokens on a simulated NeuronCore.

    python models/llama/eagle3.py

The draft learns from what the model answers when it is asked to define nouns of WordNet, so it guesses well for such
questions. Nouns that are asked in the end are held out. The folder --output has the published format of EAGLE-3 drafts.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.checkpoints import read_rows, resolve_model
from optimum_neuron.modeling import EagleDraft
from optimum_neuron.models import eagle_layers

UNROLLED = 3
"""Guesses in a row that a step of training makes, each from the one before."""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="folder, id on the Hub, or name that neuron fetch knows")
    parser.add_argument("--output", type=Path, default=Path("eagle3_out"), help="folder of the draft")
    parser.add_argument("--num_words", type=int, default=320, help="nouns whose answers the draft learns from")
    parser.add_argument("--num_held_out", type=int, default=8, help="nouns that are asked in the end")
    parser.add_argument("--max_new_tokens", type=int, default=32, help="tokens of an answer")
    parser.add_argument("--max_steps", type=int, default=100, help="steps of training")
    parser.add_argument("--batch_size", type=int, default=16, help="answers of a step")
    parser.add_argument("--learning_rate", type=float, default=2e-3, help="at its highest")
    parser.add_argument("--draft_vocab_size", type=int, default=2048, help="tokens that the draft can guess")
    parser.add_argument("--sequence_length", type=int, default=128, help="tokens of question and answer, at most")
    parser.add_argument("--num_candidates", type=int, default=4, help="tokens that it guesses at once")
    parser.add_argument("--optlevel", choices=("1", "2", "3"), default="2", help="1 starts at once, 2 runs faster")
    return parser.parse_args()


def questions(number: int) -> list[str]:
    """Questions for nouns of one word, in an order that is always the same."""
    nouns = {row["words"][0] for row in read_rows("definitions") if row["part"] == "noun"}
    words = random.Random(0).sample(sorted(word for word in nouns if word.isalpha() and word.islower()), number)
    return [f"What does the noun {word} mean?" for word in words]


class Draft(nn.Module):
    """The network of EAGLE-3 under its published names; its state is the checkpoint."""

    def __init__(self, config: LlamaConfig, target: Any, tokens: torch.Tensor) -> None:
        super().__init__()
        width, self.layers = config.hidden_size, config.eagle_config["eagle_aux_hidden_state_layer_ids"]
        self.fc = nn.Linear(3 * width, width, bias=False)
        self.midlayer = LlamaDecoderLayer(config, 0)
        for name in ("q_proj", "k_proj", "v_proj"):
            outputs = getattr(self.midlayer.self_attn, name).out_features
            setattr(self.midlayer.self_attn, name, nn.Linear(2 * width, outputs, bias=False))
        self.midlayer.hidden_norm = LlamaRMSNorm(width, eps=config.rms_norm_eps)
        self.norm = LlamaRMSNorm(width, eps=config.rms_norm_eps)
        self.lm_head = nn.Linear(width, len(tokens), bias=False)
        self.register_buffer("d2t", tokens - torch.arange(len(tokens)))
        self.register_buffer("t2d", torch.zeros(config.vocab_size, dtype=torch.bool).index_fill(0, tokens, True))
        # It begins with the head of the model, and with the feed-forward of its last layer.
        head = nn.Linear(width, len(tokens), bias=False)
        head.weight.data.copy_(target.lm_head.weight[tokens])
        self.lm_head.load_state_dict(head.state_dict())
        self.norm.load_state_dict(target.model.norm.state_dict())
        self.midlayer.mlp.load_state_dict(target.model.layers[-1].mlp.state_dict())
        # Lists keep these out of its state.
        self.embed, self.target_head, self.rotary = [target.model.embed_tokens], [head], [LlamaRotaryEmbedding(config)]

    def forward(self, ids_BT: torch.Tensor, x_BTD: torch.Tensor) -> torch.Tensor:
        """Return the layer's result, which the head and the next guess read."""
        layer = self.midlayer
        both = torch.cat([layer.input_layernorm(self.embed[0](ids_BT)), layer.hidden_norm(x_BTD)], -1)
        angles = self.rotary[0](x_BTD, torch.arange(ids_BT.shape[1])[None])
        x_BTD = x_BTD + layer.self_attn(both, position_embeddings=angles, attention_mask=None)[0]
        return x_BTD + layer.mlp(layer.post_attention_layernorm(x_BTD))

    def loss(self, ids_BT: torch.Tensor, hidden_BTF: torch.Tensor, is_answer_BT: torch.Tensor) -> torch.Tensor:
        """Cross-entropy with what the model thinks, of guesses from its hidden states and from the draft's own."""
        hidden_BTF, last_BTD = hidden_BTF.split(self.fc.in_features, -1)
        with torch.no_grad():
            expected = self.target_head[0](last_BTD[:, 1:-1]).softmax(-1)
        x_BTD, losses = self.fc(hidden_BTF[:, :-2]), []
        for _ in range(UNROLLED):
            out_BTD = self(ids_BT[:, 1:-1], x_BTD)
            losses.append(-(self.lm_head(self.norm(out_BTD)).log_softmax(-1) * expected).sum(-1)[is_answer_BT[:, 2:]])
            x_BTD = torch.cat([x_BTD[:, :1], out_BTD[:, :-1]], 1)
        return torch.stack(losses).mean()


@torch.no_grad()
def answers(target: Any, tokenizer: Any, texts: list[str], args: argparse.Namespace) -> list[tuple[torch.Tensor, int]]:
    """Tokens of each question with the model's answer, and where the answer begins."""
    found = []
    for start in range(0, len(texts), 32):
        chats = [[{"role": "user", "content": text}] for text in texts[start : start + 32]]
        options = {"add_generation_prompt": True, "return_dict": True, "return_tensors": "pt", "padding": True}
        inputs = tokenizer.apply_chat_template(chats, **options)
        tokens = target.generate(**inputs, max_new_tokens=args.max_new_tokens, do_sample=False)
        for row, mask in zip(tokens, inputs["attention_mask"], strict=True):
            row, num_prompt = row[(mask == 0).sum() :], int(mask.sum())
            ends = (row[num_prompt:] == tokenizer.eos_token_id).nonzero()
            found.append((row[: num_prompt + int(ends[0]) + 1] if len(ends) else row, num_prompt))
    return found


@torch.no_grad()
def hidden_states(target: Any, layers: list[int], ids_T: torch.Tensor) -> torch.Tensor:
    """What the layers of the model get, and its head, side by side."""
    states = target.model(ids_T[None], output_hidden_states=True).hidden_states
    return torch.cat([states[layer][0] for layer in (*layers, -1)], -1)


def train(target: Any, tokenizer: Any, texts: list[str], args: argparse.Namespace) -> tuple[Draft, LlamaConfig]:
    """Train a draft on the model's answers."""
    rows = answers(target, tokenizer, texts, args)
    counts = torch.bincount(torch.cat([ids[begin:] for ids, begin in rows]), minlength=target.config.vocab_size)
    tokens = counts.argsort(descending=True, stable=True)[: args.draft_vocab_size].sort().values
    settings = {name: value for name, value in target.config.to_dict().items() if name != "architectures"}
    settings |= {"num_hidden_layers": 1, "draft_vocab_size": len(tokens), "architectures": ["LlamaForCausalLMEagle3"]}
    settings["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": eagle_layers(target.config.num_hidden_layers)}
    config = LlamaConfig(**settings | {"tie_word_embeddings": False}, attn_implementation="sdpa")
    draft = Draft(config, target, tokens)
    states = [hidden_states(target, draft.layers, ids) for ids, _ in rows]
    optimizer = torch.optim.AdamW(draft.parameters(), lr=args.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.learning_rate, total_steps=args.max_steps + 1)
    draw, losses = random.Random(0), []
    for step in range(args.max_steps):
        batch = draw.sample(range(len(rows)), min(args.batch_size, len(rows)))
        ids_BT, hidden_BTF = (
            nn.utils.rnn.pad_sequence(parts, batch_first=True)
            for parts in ([rows[index][0] for index in batch], [states[index] for index in batch])
        )
        begins_B1 = torch.tensor([[rows[index][1]] for index in batch])
        ends_B1 = torch.tensor([[len(rows[index][0])] for index in batch])
        places_T = torch.arange(ids_BT.shape[1])
        loss = draft.loss(ids_BT, hidden_BTF, (places_T >= begins_B1) & (places_T < ends_B1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(draft.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if (step + 1) % max(1, args.max_steps // 5) == 0:
            print(f"step {step + 1}: loss {sum(losses) / len(losses):.2f}")
            losses.clear()
    return draft, config


def main() -> None:
    """Train, save, load, and ask."""
    args = arguments()
    torch.manual_seed(0)
    folder, started = resolve_model(args.model).value, time.perf_counter()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    target = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    texts = questions(args.num_held_out + args.num_words)
    draft, config = train(target, tokenizer, texts[args.num_held_out :], args)
    config.save_pretrained(args.output)
    save_file(
        {name: tensor.contiguous() for name, tensor in draft.state_dict().items()}, args.output / "model.safetensors"
    )
    print(f"trained in {time.perf_counter() - started:.0f} s: {sum(p.numel() for p in draft.parameters())} parameters")

    options = {
        "sequence_length": args.sequence_length,
        "torch_dtype": "float32",
        "optlevel": args.optlevel,
        "speculation": True,
    }
    model = NeuronModelForCausalLM.from_pretrained(
        folder, export=True, extend_length=args.num_candidates + 1, **options
    )
    eagle = EagleDraft.from_pretrained(args.output, model)
    num_same = num_checks = num_candidates = num_accepted = 0
    for text in texts[: args.num_held_out]:
        chat = [{"role": "user", "content": text}]
        inputs = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True, return_tensors="pt")
        settings = {"max_new_tokens": args.max_new_tokens, "do_sample": False}
        drafted = model.generate(**inputs, **settings, assistant_model=eagle)
        report = model.last_speculation
        num_same += torch.equal(drafted, model.generate(**inputs, **settings))
        num_checks, num_accepted = num_checks + report.num_checks, num_accepted + report.num_accepted
        num_candidates += report.num_candidates
    print(f"held-out questions: {num_same} of {args.num_held_out} answers as without a draft")
    print(f"{num_accepted / max(num_candidates, 1):.0%} of {num_candidates} candidates accepted, ", end="")
    print(f"{1 + num_accepted / max(num_checks, 1):.2f} tokens per call of the model")


if __name__ == "__main__":
    main()

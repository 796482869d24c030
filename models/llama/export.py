"""Recipe: fetch SmolLM2, export it for a simulated NeuronCore, and chat with it.

    python models/llama/export.py --prompt "Name three fruits."

Without --prompt it reads questions from the terminal, one a line, until an empty one. Any chat model of the family
works: pass its folder with --model. The export is kept in --output and loaded from there the next time.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path

from optimum_neuron import NeuronModelForCausalLM


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="folder, id on the Hub, or name that neuron fetch knows")
    parser.add_argument("--output", type=Path, default=Path("smollm2_neuron"), help="folder of the export")
    parser.add_argument("--sequence_length", type=int, default=1024, help="tokens of the whole conversation")
    parser.add_argument("--optlevel", choices=("1", "2", "3"), default="2", help="1 starts at once, 2 runs faster")
    parser.add_argument("--max_new_tokens", type=int, default=128, help="longest answer")
    parser.add_argument("--prompt", help="ask this and end")
    return parser.parse_args()


def load(args: argparse.Namespace) -> NeuronModelForCausalLM:
    """Load the export, or make it first."""
    if not (args.output / "neuron_config.json").is_file():
        options = {"sequence_length": args.sequence_length, "optlevel": args.optlevel}
        model = NeuronModelForCausalLM.from_pretrained(args.model, export=True, **options)
        model.save_pretrained(args.output)
        model.loaded.close()
    return NeuronModelForCausalLM.from_pretrained(args.output)


def questions(args: argparse.Namespace) -> Iterator[str]:
    """The prompt of the command line, or lines from the terminal."""
    if args.prompt is not None:
        yield args.prompt
        return
    with contextlib.suppress(EOFError):
        while question := input("> ").strip():
            yield question


def main() -> None:
    """Export and chat; the whole conversation is the prompt of each answer."""
    from transformers import AutoTokenizer, TextStreamer

    args = arguments()
    model, tokenizer = load(args), AutoTokenizer.from_pretrained(args.output)
    streamer = TextStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
    conversation: list[dict[str, str]] = []
    for question in questions(args):
        conversation.append({"role": "user", "content": question})
        inputs = tokenizer.apply_chat_template(
            conversation, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        tokens = model.generate(**inputs, max_new_tokens=args.max_new_tokens, do_sample=False, streamer=streamer)
        answer = tokens[0, inputs["input_ids"].shape[1] :]
        conversation.append({"role": "assistant", "content": tokenizer.decode(answer, skip_special_tokens=True)})


if __name__ == "__main__":
    main()

"""Recipe: sentences as vectors with MiniLM on a simulated NeuronCore, and how alike they are.

    python models/bert/embed.py
    python models/bert/embed.py "A cat sleeps." "A kitten takes a nap." "Rates were raised again."

The vectors are compared with those that transformers computes in float32. Any sentence-transformers folder of a BERT
works: pass it with --model.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch

from optimum_neuron import NeuronSentenceTransformer

SENTENCES = (
    "The food was delicious.",
    "I enjoyed the meal.",
    "Wall Street fell for the third day.",
    "The stock market lost value today.",
    "My bicycle has a flat tire.",
)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sentences", nargs="*", default=SENTENCES, help="texts to compare")
    parser.add_argument("--model", default="minilm", help="folder, id on the Hub, or name that neuron fetch knows")
    parser.add_argument("--batch_size", type=int, default=8, help="sentences of a compiled batch")
    parser.add_argument("--optlevel", choices=("1", "2", "3"), default="2", help="1 starts at once, 2 runs faster")
    return parser.parse_args()


def original_vectors(folder: str, sentences: Sequence[str]) -> torch.Tensor:
    """The mean of each sentence's tokens as transformers computes them, scaled to length 1."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    inputs = tokenizer(list(sentences), padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden_BTD = model(**inputs).last_hidden_state
    mask_BT1 = inputs["attention_mask"].unsqueeze(-1)
    return torch.nn.functional.normalize((hidden_BTD * mask_BT1).sum(1) / mask_BT1.sum(1), dim=-1)


def main() -> None:
    """Encode, compare each sentence with each other, and all with transformers."""
    args = arguments()
    model = NeuronSentenceTransformer.from_pretrained(
        args.model, export=True, batch_size=args.batch_size, sequence_length=[32, 128], optlevel=args.optlevel
    )
    vectors = model.encode(args.sentences, normalize_embeddings=True, convert_to_tensor=True)
    for text, row in zip(args.sentences, model.similarity(vectors, vectors), strict=True):
        print(" ".join(f"{value:6.3f}" for value in row), "", text)
    expected = original_vectors(str(model.source_folder), args.sentences)
    cosine = torch.nn.functional.cosine_similarity(vectors, expected).min()
    print(
        f"against transformers: cosine {cosine:.6f} or more, largest difference {(vectors - expected).abs().max():.1e}"
    )


if __name__ == "__main__":
    main()

"""Recipe: the ALBERT of RXNMapper on a simulated NeuronCore fills in what is missing from chemical reactions.

    python models/albert/reactions.py
    python models/albert/reactions.py "CCO.CC(=O)O>>CCOC(C)=O"

Each token of a reaction is masked in turn; the model sees all others. What it says is compared with the token that was
there, and with what transformers says in float32.
"""

from __future__ import annotations

import argparse

import torch

from optimum_neuron import NeuronModelForMaskedLM

REACTIONS = (
    "CC(=O)O.CCO>>CC(=O)OCC",  # an ester
    "CC(=O)Cl.Nc1ccccc1>>CC(=O)Nc1ccccc1",  # an amide
    "OB(O)c1ccccc1.Brc1ccncc1>>c1ccc(-c2ccncc2)cc1",  # a Suzuki coupling
    "CC(C)(C)OC(=O)NCc1ccccc1.Cl>>NCc1ccccc1",  # a protecting group is removed
)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reactions", nargs="*", default=REACTIONS, help="reactions in SMILES")
    parser.add_argument("--model", default="rxnmapper", help="folder, id on the Hub, or name that neuron fetch knows")
    parser.add_argument("--batch_size", type=int, default=16, help="rows of a compiled batch")
    parser.add_argument("--optlevel", choices=("1", "2", "3"), default="2", help="1 starts at once, 2 runs faster")
    return parser.parse_args()


def masked_rows(ids_T: torch.Tensor, mask_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A row for each token but the first and last, with that token masked; and the places."""
    places_B = torch.arange(1, len(ids_T) - 1)
    rows_BT = ids_T.repeat(len(places_B), 1)
    rows_BT[torch.arange(len(places_B)), places_B] = mask_id
    return rows_BT, places_B


def main() -> None:
    """Mask, predict, count."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    args = arguments()
    model = NeuronModelForMaskedLM.from_pretrained(
        args.model, export=True, batch_size=args.batch_size, sequence_length=[64, 128], optlevel=args.optlevel
    )
    original = AutoModelForMaskedLM.from_pretrained(model.source_folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(model.source_folder)
    num_tokens = num_right = num_same = 0
    for reaction in args.reactions:
        ids_T = tokenizer(reaction, return_tensors="pt")["input_ids"][0]
        rows_BT, places_B = masked_rows(ids_T, tokenizer.mask_token_id)
        here_B = torch.arange(len(places_B))
        found_B = model(input_ids=rows_BT).logits[here_B, places_B].argmax(-1)
        with torch.no_grad():
            expected_B = original(input_ids=rows_BT).logits[here_B, places_B].argmax(-1)
        right = int((found_B == ids_T[places_B]).sum())
        print(f"{right} of {len(places_B)} right: {reaction}")
        num_tokens, num_right = num_tokens + len(places_B), num_right + right
        num_same += int((found_B == expected_B).sum())
    print(f"{num_right} of {num_tokens} masked tokens right; {num_same} as transformers says")


if __name__ == "__main__":
    main()

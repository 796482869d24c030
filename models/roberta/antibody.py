"""Recipe: the RoBERTa of Sapiens on a simulated NeuronCore fills gaps in the sequence of an antibody.

    python models/roberta/antibody.py
    python models/roberta/antibody.py --model sapiens-vl "DIQMTQSPSSLSASVG***TITCRAS"

An asterisk stands for an amino acid that is not known. The answer is compared with transformers in float32. There is a
model for heavy chains (sapiens-vh) and one for light chains (sapiens-vl).
"""

from __future__ import annotations

import argparse

import torch

from optimum_neuron import NeuronModelForMaskedLM

SEQUENCE = "**QLVESGGGLVQPGGSLRLSC**SGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRF***ADTSKNTAYLQMNSLRAEDTAVYYCSRWG"
"""The beginning of a heavy chain of trastuzumab, with gaps."""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sequence", nargs="?", default=SEQUENCE, help="letters of amino acids, * where one is missing")
    parser.add_argument("--model", default="sapiens-vh", help="folder, id on the Hub, or name that neuron fetch knows")
    parser.add_argument("--optlevel", choices=("1", "2", "3"), default="2", help="1 starts at once, 2 runs faster")
    return parser.parse_args()


def main() -> None:
    """Fill the gaps and say how sure the model is."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    args = arguments()
    model = NeuronModelForMaskedLM.from_pretrained(
        args.model, export=True, batch_size=1, sequence_length=[64, 128], optlevel=args.optlevel
    )
    tokenizer = AutoTokenizer.from_pretrained(model.source_folder)
    inputs = tokenizer(args.sequence.replace("*", tokenizer.mask_token), return_tensors="pt")
    logits_TV = model(**inputs).logits[0]
    with torch.no_grad():
        expected_TV = AutoModelForMaskedLM.from_pretrained(model.source_folder).eval()(**inputs).logits[0]

    gaps = (inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero()[:, 0].tolist()
    filled = list(args.sequence)
    for place in gaps:
        probability, token = logits_TV[place].softmax(-1).max(-1)
        filled[place - 1] = tokenizer.convert_ids_to_tokens(token.item())  # one token comes before the sequence
        print(f"{place:4d}  {filled[place - 1]}  {probability:.2f}")
    print("".join(filled))
    same = int((logits_TV[gaps].argmax(-1) == expected_TV[gaps].argmax(-1)).sum())
    print(f"{same} of {len(gaps)} as transformers says; largest difference {(logits_TV - expected_TV).abs().max():.1e}")


if __name__ == "__main__":
    main()

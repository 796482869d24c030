"""Recipe: PP-LCNet on a simulated NeuronCore says which way up a scanned page is.

    python models/pp_lcnet/orientation.py
    python models/pp_lcnet/orientation.py scan.png photo.jpg

Without files it draws a page of text and turns it by 0, 90, 180 and 270 degrees, clockwise. The answers are compared
with transformers in float32.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from optimum_neuron import NeuronModelForImageClassification

if TYPE_CHECKING:
    from PIL.Image import Image

DEGREES = (0, 90, 180, 270)
TEXT = "When in the course of human events, line {}, it becomes"


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", nargs="*", type=Path, help="pictures of pages")
    parser.add_argument("--model", default="pp-lcnet", help="folder, id on the Hub, or name that neuron fetch knows")
    parser.add_argument("--batch_size", type=int, default=4, help="pictures of a compiled batch")
    parser.add_argument("--optlevel", choices=("1", "2", "3"), default="2", help="1 starts at once, 2 runs faster")
    return parser.parse_args()


def drawn_page() -> Image:
    """A page of 28 lines, black on white."""
    from PIL import Image, ImageDraw, ImageFont

    page = Image.new("RGB", (600, 800), "white")
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(22)
    for line in range(28):
        draw.text((40, 30 + 26 * line), TEXT.format(line + 1), font=font, fill="black")
    return page


def pages(paths: list[Path]) -> dict[str, Image]:
    """The pictures to look at, by name."""
    from PIL import Image

    if paths:
        return {str(path): Image.open(path).convert("RGB") for path in paths}
    page = drawn_page()
    return {f"turned by {degrees}": page.rotate(-degrees, expand=True) for degrees in DEGREES}


def main() -> None:
    """Classify, and compare with transformers."""
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    args = arguments()
    model = NeuronModelForImageClassification.from_pretrained(
        args.model, export=True, batch_size=args.batch_size, optlevel=args.optlevel
    )
    processor = AutoImageProcessor.from_pretrained(model.source_folder)
    original = AutoModelForImageClassification.from_pretrained(model.source_folder).eval()
    found = pages(args.images)
    inputs = processor(images=list(found.values()), return_tensors="pt")
    logits_BC = model(**inputs).last_hidden_state  # transformers' name for the logits of this architecture
    with torch.no_grad():
        expected_BC = original(**inputs).last_hidden_state
    for name, row in zip(found, logits_BC.softmax(-1), strict=True):
        print(f"{name}: {model.config.id2label[int(row.argmax())]} degrees, probability {row.max():.2f}")
    same = int((logits_BC.argmax(-1) == expected_BC.argmax(-1)).sum())
    print(
        f"{same} of {len(found)} as transformers says; largest difference {(logits_BC - expected_BC).abs().max():.1e}"
    )


if __name__ == "__main__":
    main()

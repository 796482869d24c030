"""The architectures of one forward that are tested, as data: what they take, and what they need of their own.

Everything else is read from the model: a transformers architecture that is not in this table takes the generic path,
which is this code without the table. Add a row, a tiny configuration in `tests/encoders.py`, and run the tests.
"""

from __future__ import annotations

import dataclasses

from ...base.core import Choice
from .patches import (
    BIAS_CACHE,
    CONVOLUTION,
    COORDINATES,
    DEPTHWISE,
    GROUP_NORM,
    LAST_END,
    LENGTHS,
    POSITIONS,
    TRIGRAM,
    XVECTOR,
    Patch,
)

GENERIC = "generic"
"""Name of the path of architectures that are not in the table."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Architecture:
    """What is known of one or several model types."""

    model_types: tuple[str, ...]
    """Architectures that behave alike."""
    patches: tuple[Patch, ...] = ()
    """What is done differently while the model is traced."""
    exact: str | None = None
    """Why inputs cannot be padded, although the model takes a mask."""
    exact_tasks: tuple[str, ...] = ()
    """Tasks of which that is true; none: all."""
    without: tuple[str, ...] = ()
    """Arguments of `forward` that are no inputs."""
    ignored: tuple[str, ...] = ()
    """What its processor makes and its forward drops."""
    positions_after_padding: bool = False
    """Positions count from `pad_token_id + 1`, so that as many fewer are left."""
    has_fewer_frames: bool = False
    """Results have fewer frames than inputs, and those of padding are left out of them exactly."""
    contrastive: bool = False
    """Compares every text with every image: their batches are of different sizes."""


_READS_LAST = "it reads the last position, which would be padding"

ARCHITECTURES = (
    Architecture(
        model_types=(
            *("bert", "albert", "distilbert", "electra", "deberta", "deberta-v2"),
            *("modernbert", "phi"),
        ),
    ),
    Architecture(model_types=("roberta", "xlm-roberta", "camembert", "mpnet"), positions_after_padding=True),
    Architecture(model_types=("esm",), positions_after_padding=True),
    Architecture(model_types=("roformer",), exact=_READS_LAST, exact_tasks=("multiple-choice",)),
    Architecture(model_types=("mobilebert",), patches=(TRIGRAM,)),
    Architecture(
        model_types=("convbert",), patches=(CONVOLUTION,), exact=_READS_LAST, exact_tasks=("multiple-choice",)
    ),
    Architecture(model_types=("flaubert", "xlm"), patches=(LENGTHS,), without=("token_type_ids",)),
    Architecture(
        model_types=(
            *("vit", "beit", "convnext", "convnextv2", "cvt", "deit", "swin", "dinov2"),
            *("mobilenet_v2", "mobilevit", "resnet", "dpt", "segformer", "pp_lcnet", "donut-swin"),
        ),
    ),
    Architecture(model_types=("levit",), patches=(BIAS_CACHE,)),
    Architecture(model_types=("swinv2",), patches=(COORDINATES,)),
    Architecture(model_types=("yolos",), ignored=("pixel_mask",)),
    Architecture(model_types=("detr",)),
    Architecture(model_types=("clip",), contrastive=True),
    Architecture(
        model_types=("siglip",),
        contrastive=True,
        without=("attention_mask",),
        exact="it was trained on texts that the tokenizer pads to one length, and reads the last position",
    ),
    Architecture(
        model_types=("wav2vec2", "wavlm", "hubert", "unispeech", "unispeech-sat"), patches=(GROUP_NORM, XVECTOR)
    ),
    Architecture(model_types=("wav2vec2-conformer",), patches=(GROUP_NORM, DEPTHWISE, XVECTOR)),
    Architecture(model_types=("wav2vec2-bert",), patches=(XVECTOR,)),
    Architecture(model_types=("data2vec-audio",), patches=(POSITIONS, XVECTOR)),
    Architecture(
        model_types=("sew", "sew-d"), exact="it averages neighboring frames, and a real one may be beside padding"
    ),
    Architecture(model_types=("parakeet_ctc", "lasr_ctc"), has_fewer_frames=True),
    Architecture(model_types=("audio-spectrogram-transformer",), without=("attention_mask",)),
)

_BY_TYPE = {model_type: row for row in ARCHITECTURES for model_type in row.model_types}
_UNKNOWN = Architecture(model_types=(), patches=(LAST_END,))


def find_architecture(model_type: str) -> tuple[Choice[str], Architecture]:
    """Return what is known of a model type, and whether it is anything."""
    row = _BY_TYPE.get(model_type)
    if row is not None:
        return Choice(value=model_type, reason=f"the table of architectures has {model_type}"), row
    reason = f"{model_type} is not in the table of architectures: inputs and axes are read from its forward"
    return Choice(value=GENERIC, reason=reason), _UNKNOWN


def model_types() -> tuple[str, ...]:
    """Every architecture of the table, in its order."""
    return tuple(_BY_TYPE)

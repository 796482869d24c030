"""Recordings that clients send, as samples: soundfile decodes them, and soxr resamples.

It does not know models or HTTP.
"""

from __future__ import annotations

import io
from typing import Any

from ..errors import RequestError

_LONGEST_S = 3600
"""A small file can hold days of silence."""
_MOST_FRAMES = _LONGEST_S * 48_000
"""Samples of each channel: a file may name any rate."""
_BLOCK = 2**20
"""Frames that are decoded and mixed at once."""


def read_recording(raw: bytes, rate: int) -> Any:
    """Return the samples of a file as float32, mixed to one channel, at this rate."""
    import numpy
    import soundfile
    import soxr

    try:
        with soundfile.SoundFile(io.BytesIO(raw)) as file:
            seconds = file.frames / file.samplerate
            if seconds > _LONGEST_S:
                message = f"The recording has {seconds:.0f} s; at most {_LONGEST_S} s are taken."
                raise RequestError(message, hint="Send it in parts.", status=400, param="file")
            if file.frames > _MOST_FRAMES:
                message = f"The recording has {file.frames} samples of a channel; at most {_MOST_FRAMES} are taken."
                raise RequestError(message, hint="Send it in parts.", status=400, param="file")
            blocks = file.blocks(_BLOCK, dtype="float32", always_2d=True)
            parts, own_rate = [block.mean(axis=1) for block in blocks], file.samplerate
            samples = numpy.concatenate(parts) if parts else numpy.zeros(0, numpy.float32)
    except (soundfile.SoundFileError, ArithmeticError, TypeError, ValueError) as error:
        if isinstance(error, RequestError):
            raise
        message = f"The recording cannot be read: {str(error)[:200]}"
        raise RequestError(message, hint="Send a wav, flac, ogg, or mp3 file.", status=400, param="file") from error
    if not len(samples) or not numpy.isfinite(samples).all():
        message = (
            "The recording has no samples." if not len(samples) else "The recording has samples that are no numbers."
        )
        raise RequestError(message, hint="Send another one.", status=400, param="file")
    return samples if own_rate == rate else soxr.resample(samples, own_rate, rate)

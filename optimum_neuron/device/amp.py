"""bfloat16 as the default of `torch.autocast("neuron")`, in every thread, and autocast of scripts written for CUDA.

torch keeps the dtype for each thread, and a third-party device starts with float16. TensorE's own is bfloat16.
Training scripts of diffusers draw validation images in `torch.autocast("cuda")`, also where accelerate runs them on
another device. Without CUDA torch would disable it, and models of two dtypes fail.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

from ..upstream.torch import AUTOCAST_INIT


class _Thread(threading.local):
    has_default = False


_thread = _Thread()


def install() -> None:
    """Give each thread the default before its first autocast, and let "cuda" mean the device where CUDA is missing."""
    set_default_of_thread()
    AUTOCAST_INIT.replace(_knowing_device)


def _knowing_device(original: Callable[..., None]) -> Callable[..., None]:
    import torch

    @functools.wraps(original)
    def initialize(self: object, device_type: str, *args: object, **kwargs: object) -> None:
        if device_type == "cuda" and not torch.cuda.is_available():
            device_type = "neuron"
            if isinstance(self, torch.cuda.amp.autocast) and kwargs.get("dtype") == torch.float16:
                kwargs["dtype"] = None  # it is that class's default, not a choice of the script
        if device_type == "neuron":
            set_default_of_thread()
        original(self, device_type, *args, **kwargs)

    return initialize


def set_default_of_thread() -> None:
    """Once per thread: later settings of the thread are its own."""
    import torch

    if not _thread.has_default:
        _thread.has_default = True
        torch.set_autocast_dtype("neuron", torch.bfloat16)

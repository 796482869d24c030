"""Kernels as data: the instructions of one launch with static shapes, without the kernel's Python.

    folding.py     loops whose iterations are alike become one body
    document.py    the stream as frozen dataclasses
    codec.py       the stream as JSON and safetensors, and back
    machine.py     runs a stream, checks it, or lists its instructions
    tracing.py     a kernel and its arguments become a stream

A stream runs without the kernel's source, with the results of the kernel, bit by bit.

    traced = trace(kernel, (x, 0.5), {})
    (result,) = run(traced.stream, [x])
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

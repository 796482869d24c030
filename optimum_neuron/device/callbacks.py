"""What C++ asks of Python: cores and their limits, and the lanes of torch's profiler (`struct Host` of csrc/host.h).

library.connect(callbacks.answers, parts.complete)
"""

from __future__ import annotations

import ctypes

from .library import Callbacks


def answers(functions: ctypes.CDLL) -> Callbacks:
    """Return the callbacks of the shared object, by name. Each imports what it needs: `import torch` comes here."""

    def device_count() -> int:
        from . import placement

        return placement.device_count()

    def default_device() -> int:
        from . import placement

        return placement.default_device()

    def claim(device: int) -> int:
        from . import numerics, placement, products
        from .module import eager

        numerics.current()
        products.current()
        eager.begin()
        placement.attach_meter(device, functions.neuron_used_bytes, functions.neuron_set_limit)
        return placement.limit(device)

    def limit(device: int) -> int:
        from . import placement

        return placement.limit(device)

    def out_of_memory(device: int, size_bytes: int) -> int:
        from . import placement

        functions.neuron_refuse(placement.out_of_memory(device, size_bytes).encode())
        return 0

    def start_lanes() -> int:
        from ..profiling import torch_profiler

        return torch_profiler.start()

    def stop_lanes(recording: int) -> int:
        from ..profiling import torch_profiler

        for event in torch_profiler.stop(recording):
            name = event.name.encode()
            functions.neuron_add_lane_event(event.is_call, name, event.core_id, event.started_ns, event.ended_ns)
        return 0

    called = (device_count, default_device, claim, limit, out_of_memory, start_lanes, stop_lanes)
    return {function.__name__: function for function in called}

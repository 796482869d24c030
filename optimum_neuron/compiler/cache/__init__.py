"""The compile cache: NEFFs found by everything that decides them, shared by processes and machines.

It stores NEFFs under the hash of their `fields` (IR, shapes, dtypes, flags, target, compiler version), so it holds no
path and no weight, and a cache copied elsewhere still hits. It does not depend on how a NEFF is compiled. Layout, locks
and guarantees are in `docs/cache.md`.

    >>> import tempfile
    >>> from optimum_neuron.compiler.cache import CompileCache
    >>> from optimum_neuron.compiler.neff import write_neff
    >>> fields = {"compiler_version": "2.21", "target": "inf2", "sequence_length": 128}
    >>> def produce(path):
    ...     write_neff(path, {"ir.json": b"{}"}, name="bert", target="inf2", core_version=2, compiler_version="2.21",
    ...                metadata={})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cache = CompileCache(folder)
    ...     cache.get_or_compile(fields, produce).hit, cache.get_or_compile(fields, produce).hit
    (False, True)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""The NEFF container: a 1,024-byte header and an uncompressed tar of named members.

It stores bytes. It does not depend on torch or on the meaning of a member, except `neff.json`, which names the target.
Equal content gives equal bytes. The layout is in `docs/neff-format.md`.

    >>> import tempfile
    >>> from optimum_neuron.compiler.neff import open_neff, write_neff
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     header = write_neff(f"{folder}/model.neuron", {"ir.json": b"{}"}, name="bert", target="inf2",
    ...                         core_version=2, compiler_version="2.21", metadata={"task": "fill-mask"})
    ...     with open_neff(f"{folder}/model.neuron") as neff:
    ...         neff.names, bytes(neff.read("ir.json")), neff.metadata["task"]
    (('ir.json',), b'{}', 'fill-mask')
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

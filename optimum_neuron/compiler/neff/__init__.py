"""The NEFF container: a 1,024-byte header and an uncompressed tar of named members.

It stores bytes. It knows nothing of torch or of what a member means, except `neff.json`, which names the target it was
compiled for. Equal content gives equal bytes. The layout is in `docs/neff-format.md`.

    >>> import tempfile
    >>> from optimum_neuron.compiler.neff import open_neff, write_neff
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     header = write_neff(f"{folder}/model.neuron", {"ir.json": b"{}"}, name="bert", target="inf2",
    ...                         core_version=2, compiler_version="2.21", metadata={"task": "fill-mask"})
    ...     with open_neff(f"{folder}/model.neuron") as neff:
    ...         neff.names, bytes(neff.read("ir.json")), neff.metadata["task"]
    (('ir.json',), b'{}', 'fill-mask')
"""

from .document import DOCUMENT_NAME, FORMAT_VERSION, NeffDocument
from .header import HEADER_SIZE_BYTES, NeffHeader
from .reader import Neff, check_target, neff_from_bytes, open_neff
from .unpack import unpack
from .writer import write_neff

__all__ = [
    "DOCUMENT_NAME",
    "FORMAT_VERSION",
    "HEADER_SIZE_BYTES",
    "Neff",
    "NeffDocument",
    "NeffHeader",
    "check_target",
    "neff_from_bytes",
    "open_neff",
    "unpack",
    "write_neff",
]

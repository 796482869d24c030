"""The published 1,024-byte header in front of every NEFF.

It knows the struct and nothing of the tar behind it. Field names, order, and widths follow the Neuron SDK
documentation, "Work with NEFF Files", section "NEFF Header"; numbers are little-endian.

    >>> from optimum_neuron.compiler.neff.header import NeffHeader
    >>> header = NeffHeader(data_size=2048, build_version="2.21", hash=bytes(32), name="bert", num_tpb=2)
    >>> len(header.pack()), NeffHeader.unpack(header.pack()) == header
    (1024, True)
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass

_LAYOUT = struct.Struct("<5Q 128s I 32s 16s 256s I 64x Q I 468x")

HEADER_SIZE_BYTES = _LAYOUT.size
"""1,024: the tar begins right behind."""
PKG_VERSION = 1
"""An uncompressed tar with a SHA-256 hash; 2 is the gzip-compressed tar that the vendor's compiler writes."""


@dataclass(frozen=True, kw_only=True)
class NeffHeader:
    """The header's fields, by their published names; `tpb_per_node` and the padding are zero."""

    pkg_version: int = PKG_VERSION
    """Packing of the data part."""
    header_size: int = HEADER_SIZE_BYTES
    """Bytes before the data part."""
    data_size: int
    neff_version_major: int = 1
    """Version of the format; a reader rejects newer ones."""
    neff_version_minor: int = 0
    """Revision of the format; a reader rejects newer ones."""
    build_version: str
    num_tpb: int
    hash: bytes
    """SHA-256 of the data part."""
    name: str
    feature_bits: int = 0
    """Optional features in use: none."""
    lnc_size: int = 1
    """Physical NeuronCores that make one logical core."""

    @property
    def uuid(self) -> uuid.UUID:
        """Identity of the content, derived from the hash so that equal content has equal bytes."""
        return uuid.uuid5(uuid.NAMESPACE_OID, self.hash.hex())

    def pack(self) -> bytes:
        """The 1,024 bytes."""
        return _LAYOUT.pack(
            self.pkg_version,
            self.header_size,
            self.data_size,
            self.neff_version_major,
            self.neff_version_minor,
            self.build_version.encode(),
            self.num_tpb,
            self.hash,
            self.uuid.bytes,
            self.name.encode(),
            self.num_tpb,
            self.feature_bits,
            self.lnc_size,
        )

    @classmethod
    def unpack(cls, raw: bytes) -> NeffHeader:
        """Read the fields from 1,024 bytes, unchecked."""
        (pkg, size, data_size, major, minor, build, num_tpb, digest, _uuid, name, _requested, features, lnc) = (
            _LAYOUT.unpack(raw)
        )
        return cls(
            pkg_version=pkg,
            header_size=size,
            data_size=data_size,
            neff_version_major=major,
            neff_version_minor=minor,
            build_version=_text(build),
            num_tpb=num_tpb,
            hash=digest,
            name=_text(name),
            feature_bits=features,
            lnc_size=lnc,
        )


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode(errors="replace")

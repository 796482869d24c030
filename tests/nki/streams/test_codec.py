"""Stored streams are data: what is edited by hand is refused, and lines of the source are not part of the content."""

from __future__ import annotations

import json

import pytest
import torch

from optimum_neuron.errors import ArtifactError, FormatVersionError, KernelError
from optimum_neuron.hardware import resolve_target
from optimum_neuron.nki import isa as nisa, jit, language as nl, streams


@jit
def kernel(x):
    tile, out = nl.ndarray((128, 16), x.dtype), nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for block in nl.affine_range(x.shape[0] // 128):
        nisa.dma_copy(tile, x[nl.ds(block * 128, 128)])
        nisa.activation(tile, nl.exp, tile, scale=0.5)
        nisa.tensor_copy(tile, tile, engine=nisa.engine.vector)
        nisa.dma_copy(out[nl.ds(block * 128, 128)], tile)
    return out


@pytest.fixture
def document():
    return json.loads(streams.encode(streams.trace(kernel, (torch.ones(256, 16),), {}).stream))


def body(document):
    (loop,) = [node for node in document["programs"][0] if node[0] == "loop"]
    return loop[2]


def read(document):
    stream = streams.decode(json.dumps(document).encode(), {})
    streams.verify(stream, resolve_target("trn3").value)


def set_offset(document):
    body(document)[0][1]["src"]["view"][1] = [0, 129 * 16]


def set_negative_offset(document):
    body(document)[0][1]["src"]["view"][1] = [128 * 16, -129 * 16]


def set_partitions(document):
    document["memories"][1][3] = [129, 16]
    body(document)[1][1]["dst"]["view"][2] = [129, 16]


def set_buffer(document):
    document["memories"][1][1] = "shared_hbm"


def set_engine(document):
    body(document)[2][1]["engine"] = {"name": ["Engine", "tensor"]}


def set_unknown_engine(document):
    body(document)[2][1]["engine"] = {"name": ["Engine", "cpu"]}


def set_opcode(document):
    body(document)[2][0] = "system"


def set_operands(document):
    body(document)[2][1]["command"] = "ls"


def set_kind(document):
    body(document)[1][1]["op"] = "exp"


def use_before_allocation(document):
    del document["programs"][0][0]


@pytest.mark.parametrize(
    ("edit", "rule"),
    [
        (set_offset, "bounds"),
        (set_negative_offset, "bounds"),
        (set_partitions, "partition"),
        (set_buffer, "buffer"),
        (set_engine, "engine"),
        (set_unknown_engine, "stream"),
        (set_opcode, "stream"),
        (set_operands, "stream"),
        (set_kind, "stream"),
        (use_before_allocation, "stream"),
    ],
)
def test_edited_instructions_are_refused(document, edit, rule):
    read(document)
    edit(document)
    with pytest.raises(KernelError) as excinfo:
        read(document)
    assert excinfo.value.details["rule"] == rule and excinfo.value.details["line"]


@pytest.mark.parametrize(
    "edit",
    [
        lambda document: document.pop("memories"),
        lambda document: document["memories"][0].__setitem__(2, "float128"),
        lambda document: document["memories"][0].__setitem__(1, "disk"),
        lambda document: document["inputs"].append(99),
        lambda document: document["constants"].append("c"),
        lambda document: body(document)[0][1].__setitem__("src", {"pickle": "x"}),
        lambda document: body(document)[0][1]["src"]["view"].__setitem__(1, [0]),
        lambda document: body(document)[0][1]["src"]["view"][3].append(1),
        lambda document: document["programs"][0].append(["loop", 1, []]),
        lambda document: document["programs"].append("x"),
        lambda document: document["programs"].append([]),
        lambda document: document["changed"].append(1),
    ],
)
def test_broken_documents_are_refused(document, edit):
    edit(document)
    with pytest.raises(ArtifactError):
        read(document)


def test_newer_format_is_refused(document):
    with pytest.raises(FormatVersionError) as excinfo:
        read(document | {"format": streams.FORMAT_VERSION + 1})
    assert excinfo.value.details["format_version"] == streams.FORMAT_VERSION + 1


def test_content_names_a_stream():
    def digest(x, value):
        @jit
        def filled(x):
            tile = nl.load(x)
            nisa.memset(tile, value)
            nl.store(x, tile)

        return streams.trace(filled, (x,), {}).stream.digest

    def elsewhere(x):
        @jit
        def filled(x):
            tile = nl.load(x)
            nisa.memset(tile, 1.0)
            nl.store(x, tile)

        return streams.trace(filled, (x,), {}).stream.digest

    x = torch.ones(128, 4)
    assert digest(x, 1.0) == elsewhere(x) != digest(x, 2.0) != digest(x[:64], 2.0)

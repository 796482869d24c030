"""Unpacking NEFFs, and checking for whom they were compiled."""

from __future__ import annotations

import pytest

from optimum_neuron.compiler.neff import check_target, open_neff, unpack, write_neff
from optimum_neuron.errors import ArtifactError, TargetMismatchError

FACTS = dict(name="bert", target="inf2", core_version=2, compiler_version="2.21.5", metadata={})


@pytest.fixture
def path(tmp_path):
    write_neff(tmp_path / "model.neuron", {"ir.json": b'{"nodes": []}', "tensors/w": bytes(4096)}, **FACTS)
    return tmp_path / "model.neuron"


def test_targets_of_one_generation_share_artifacts_and_others_do_not(path):
    with open_neff(path) as neff:
        check_target(neff, "trn1", 2)
        with pytest.raises(TargetMismatchError) as refused:
            check_target(neff, "trn2", 3)
    for part in ("inf2 (NeuronCore-v2)", "trn2 (NeuronCore-v3)", "optimum-cli export neuron", "--instance_type trn2"):
        assert part in str(refused.value)
    assert refused.value.details["compiled_core_version"] == 2


def test_unpack_gives_all_members_in_a_new_folder(path, tmp_path):
    files = unpack(path, tmp_path / "new" / "out")
    assert [file.relative_to(tmp_path / "new" / "out").as_posix() for file in files] == [
        "ir.json",
        "neff.json",
        "tensors/w",
    ]
    assert files[0].read_bytes() == b'{"nodes": []}'
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["out"]


def test_unpack_overwrites_nothing(path, tmp_path):
    with pytest.raises(ArtifactError, match="not an empty folder"):
        unpack(path, tmp_path)

import pytest

from optimum_neuron.errors import ArtifactError

FACTS = {
    "format_version": 1,
    "target": {"value": "inf2", "reason": "compiled for it"},
    "size_bytes": 2048,
    "flags": {"auto_cast": "none", "optlevel": "2", "limits": {"hbm_bytes": 1024**3}},
    "graphs": [
        {"name": "prefill_64", "inputs": ["int64[1, 64]"], "size_bytes": 1024},
        {"name": "decode", "inputs": ["int64[1, 1]", "int64[1]"]},
    ],
    "weights": [],
}


@pytest.fixture
def inspect(cli, fake_module):
    """Run the command on a folder that holds some facts."""

    def run(folder, *words, facts=FACTS):
        fake_module("optimum_neuron.exporters", inspect_export=lambda path: facts if path == folder else None)
        return cli("neuron", "inspect", folder, *words)

    return run


def test_everything_is_shown(inspect):
    lines = inspect("out").stdout.splitlines()
    for line in (
        "format_version  1",
        "target          inf2     compiled for it",
        "size_bytes      2.0 KiB",
        "weights         none",
        "flags",
        "auto_cast  none",
        "flags.limits",
        "hbm_bytes  1.0 GiB",
        "graphs",
        "prefill_64  int64[1, 64]           1.0 KiB",
        "decode      int64[1, 1], int64[1]",
    ):
        assert line in lines


def test_size_inherits_unit_of_key(inspect):
    lines = inspect("out", facts={"hbm_bytes": {"weights": 3 * 2**20, "total": 1024**3}}).stdout.splitlines()
    assert "weights  3.0 MiB" in lines and "total    1.0 GiB" in lines


def test_long_tables_are_left_to_json(inspect):
    neff = {"name": "llama", "members": [{"name": "bodies/sub_1.json"}], "metadata": {"weight_sources": {"a": ["b"]}}}
    facts = {"folder": "my out", "neff": neff}
    result = inspect("my out", facts=facts)
    assert "llama" in result.stdout and "sub_1" not in result.stdout and "weight_sources" not in result.stdout
    assert result.stderr == "next: optimum-cli neuron inspect 'my out' --json  # adds neff members, metadata\n"
    assert inspect("my out", "--json", facts=facts).json == facts


def test_broken_folder_is_known_error(cli, fake_module):
    def inspect_export(path):
        raise ArtifactError(f"{path}: no model.neuron")

    fake_module("optimum_neuron.exporters", inspect_export=inspect_export)
    result = cli("neuron", "inspect", "out")
    assert (result.code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: out: no model.neuron\nnext: optimum-cli export neuron")

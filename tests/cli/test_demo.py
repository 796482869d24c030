REPORT = {
    "answer": "A compiler translates programs.",
    "compile_s": 12.3456,
    "cache": {"value": "hit", "reason": "same program, shapes, flags and target"},
    "load_s": 0.5,
    "first_token_after_s": 9.5,
    "full_speed_after_s": 21.0,
    "time_to_first_token_s": 0.25,
    "tokens_per_s": 44.0,
    "target": {"value": "inf2", "reason": "the default"},
}


def run(cli, fake_module, *words, report=REPORT):
    arguments = {}

    def fake_run(*, on_answer, **options):
        on_answer(report["answer"])
        arguments.update(options)
        return report

    fake_module("optimum_neuron.demo", run=fake_run)
    return cli("neuron", "demo", *words), arguments


def test_answer_precedes_labelled_table(cli, fake_module):
    result, arguments = run(cli, fake_module)
    lines = result.stdout.splitlines()
    assert arguments == {}
    assert lines[:3] == [REPORT["answer"], "", "simulated target inf2; times are this host's"]
    rows = {line.partition("  ")[0]: line.split("  ", 1)[1].split() for line in lines[4:] if "  " in line}
    assert rows["compile for the target, s"] == ["12.35"]
    assert rows["compile cache"] == ["hit", *["same", "program,", "shapes,", "flags", "and", "target"]]
    assert rows["first token after the command, s"] == ["9.5"] and rows["tokens/s at full speed"] == ["44"]


def test_options_reach_demo(cli, fake_module):
    _, arguments = run(cli, fake_module, "--prompt", "Why?", "--max_new_tokens", "7", "--wait-for-host-code")
    assert arguments == {"prompt": "Why?", "max_new_tokens": 7, "wait_for_host_code": True}


def test_quiet_prints_answer_and_json_everything(cli, fake_module):
    assert run(cli, fake_module, "--quiet")[0].stdout == REPORT["answer"] + "\n"
    assert run(cli, fake_module, "--json")[0].json == REPORT


def test_missing_keys_are_left_out(cli, fake_module):
    result, _ = run(cli, fake_module, report={"answer": "yes", "load_s": 1.0})
    assert result.code == 0
    assert "load, s" in result.stdout and "first token" not in result.stdout


def test_output_fits_100_columns_and_ends_with_the_next_command(cli, fake_module):
    reason = "5 of 16 blocks compiled in the background, 99.5 s"
    host = {"value": "aten, inductor", "reason": reason}
    cache = {"value": "miss", "reason": "no such entry; " + "the nearest one differs " * 9}
    result, _ = run(cli, fake_module, report=REPORT | {"host_code": host, "cache": cache, "download_s": 21.5})
    assert max(map(len, result.stdout.splitlines())) <= 100 and reason in result.stdout
    assert "download and convert, s" in result.stdout and "without the download" in result.stdout
    assert result.stderr.splitlines()[-1].endswith("export neuron -m FOLDER_OR_HUB_ID my_model  # your own model")

REPORT = {
    "answer": "A compiler translates programs.",
    "compile_s": 12.3456,
    "cache": {"value": "hit", "reason": "same program, shapes, flags and target"},
    "load_s": 0.5,
    "time_to_first_token_s": 0.25,
    "tokens_per_s": 44.0,
    "target": {"value": "inf2", "reason": "the default"},
}


def run(cli, fake_module, *words, report=REPORT):
    asked = {}
    fake_module("optimum_neuron.demo", run=lambda **options: asked.update(options) or report)
    return cli("neuron", "demo", *words), asked


def test_the_answer_comes_first_then_the_labelled_table(cli, fake_module):
    ran, asked = run(cli, fake_module)
    lines = ran.stdout.splitlines()
    assert asked == {}
    assert lines[:3] == [REPORT["answer"], "", "simulated target inf2; times are this host's"]
    assert "compile, s              12.35" in lines
    assert "compile cache           hit    same program, shapes, flags and target" in lines
    assert "tokens per second       44" in lines


def test_options_reach_the_demo(cli, fake_module):
    _, asked = run(cli, fake_module, "--prompt", "Why?", "--max_new_tokens", "7")
    assert asked == {"prompt": "Why?", "max_new_tokens": 7}


def test_quiet_is_the_answer_and_json_is_everything(cli, fake_module):
    assert run(cli, fake_module, "--quiet")[0].stdout == REPORT["answer"] + "\n"
    assert run(cli, fake_module, "--json")[0].json == REPORT


def test_missing_keys_are_left_out(cli, fake_module):
    ran, _ = run(cli, fake_module, report={"answer": "yes", "load_s": 1.0})
    assert ran.code == 0
    assert "load, s" in ran.stdout and "first token" not in ran.stdout

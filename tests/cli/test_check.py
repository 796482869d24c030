import pytest

from optimum_neuron.checking import require_conditions
from optimum_neuron.cli.check import percent


def row(**changes):
    return {
        "op": "aten.linear.default", "host_name": "aten::linear", "count": 8, "verdict": "native", "rule": "matmul",
        "reason": "maps to DotGeneral", "source": "", "code": None, "remedy": None,
        "module_paths": ["model.layers.0-3.mlp", "lm_head", "", "a"], "source_lines": [], "flops": 900,
        "flops_counted": "products", "flops_share": 0.9,
    } | changes  # fmt: skip


SORT = row(
    op="aten.sort.default", host_name="aten::sort", count=2, verdict="unsupported", code="NCC_EVRF001", flops=100,
    flops_counted="elements", flops_share=0.1, reason="it needs a full sort", remedy="use torch.topk",
    module_paths=["model.layers.0-1.mlp"], source_lines=["model.py:8"],
)  # fmt: skip


class Report:
    """Stand-in for the result of `check_model`, with the fields that the command reads."""

    def __init__(self, tier=1, operators=None, failures=()):
        self.tier, self.operators, self.capture_failures = tier, operators or [row()], list(failures)

    def failures(self, conditions):
        return tuple(name for name in conditions if name == "unsupported" and self.tier > 1)

    def to_dict(self):
        reasons = ["every operator runs on inf2"] if self.tier == 1 else ["a", "b"]
        graph = {"name": "prefill_16", "num_calls": 10, "flops": 1000, "placed_share": 0.9}
        return {
            "model": "my model",
            "tier": {"value": self.tier, "name": "some effort", "reasons": reasons},
            "placed_share": None if self.capture_failures else 0.9,
            "task": {"value": "text-generation", "reason": "asked for"},
            "family": None,
            "target": {"value": "inf2", "reason": "default"},
            "instance": "inf2.xlarge",
            "buckets_between": {"prefill_buckets": [32, 64]},
            "graphs": [] if self.capture_failures else [graph],
            "operators": self.operators,
            "capture_failures": self.capture_failures,
            "memory": {"fits": True, "reason": "fits", "hbm_bytes": {"total": 1024**3, "available": 16 * 1024**3}},
        }


@pytest.fixture
def check(cli, fake_module):
    def run(report, *words):
        requests = []

        def check_model(model, **options):
            requests.append((model, options))
            return report

        fake_module("optimum_neuron.checking", check_model=check_model, require_conditions=require_conditions)
        return cli("neuron", "check", "my model", *words), requests

    return run


def test_options_are_passed_on(check):
    words = ["--allow_host_ops", "aten::sort, aten::topk", "--instance_type", "trn2", "--batch_size", "2"]
    _, arguments = check(Report(), *words, "--prefill_buckets", "16,64", "--quiet")
    options = {"instance_type": "trn2", "batch_size": 2, "prefill_buckets": (16, 64)}
    assert arguments == [("my model", options | {"allow_host_ops": ("aten::sort", "aten::topk")})]


def test_buckets_without_captured_graphs_are_named(check):
    result, _ = check(Report())
    assert "not captured: prefill_buckets 32, 64, between the smallest and the largest" in result.stdout
    _, arguments = check(Report(), "--all_graphs")
    assert arguments == [("my model", {"all_graphs": True})]


def test_drop_in_model_is_followed_by_its_export(check):
    result, _ = check(Report())
    assert result.code == 0
    assert result.stderr == "next: optimum-cli export neuron -m 'my model' OUTPUT ...  # with the same options\n"
    lines = result.stdout.splitlines()
    for line in (
        "tier      1, some effort   every operator runs on inf2",
        "prefill_16     10   1000  90.0 %",
        "all            10   1000  90.0 %",
        "total      1.0 GiB   6.2 %",
        "fits",
    ):
        assert line in lines
    (linear,) = [line for line in lines if line.startswith("aten.linear.default")]
    assert linear.endswith("model.layers.0-3.mlp, lm_head, top level, and 1 more") and "90.0 %" in linear


def test_every_unsupported_operator_has_location_and_remedy(check):
    result, _ = check(Report(tier=2, operators=[SORT, row()]))
    assert result.code == 0
    report = result.stdout.partition("NCC_EVRF001 ")[2]
    assert report.startswith(
        "aten.sort.default, 2 calls: unsupported\n  where: model.layers.0-1.mlp, model.py:8\n"
        "  why: it needs a full sort\n  do: use torch.topk\n"
    )
    assert "2 obstacles, see below" in result.stdout
    assert "--allow_host_ops aten::sort ..." in result.stderr


def test_host_is_not_suggested_where_it_cannot_help(check):
    result, _ = check(Report(tier=2, operators=[SORT, SORT | {"host_name": None}]))
    assert result.stderr == ""


def test_capture_error_shows_its_line(check):
    failure = {"graphs": ["prefill_16", "decode_16"], "source_line": "model.py:3: if x.all():", "reason": "No. Do."}
    result, _ = check(Report(tier=3, failures=[failure]))
    assert "cannot be captured: prefill_16, decode_16\n  where: model.py:3: if x.all():\n  No. Do.\n" in result.stdout


def test_exit_code_follows_fail_on(check):
    report = Report(tier=2, operators=[SORT])
    assert check(report)[0].code == 0
    assert check(report, "--fail-on", "host,memory")[0].code == 0
    result, _ = check(report, "--fail-on", "host,unsupported", "--json")
    assert (result.code, result.json["failed_on"]) == (1, ["unsupported"])
    assert result.stderr == "warning: conditions of --fail-on are met: unsupported\n"


def test_unknown_condition_is_refused_before_anything_is_captured(check):
    result, arguments = check(Report(), "--fail-on", "hosts")
    assert (result.code, arguments) == (1, []) and "'hosts', did you mean 'host'?" in result.stderr


def test_quiet_is_tier(check):
    assert check(Report(tier=2), "--quiet")[0].stdout == "2\n"


def test_real_model_from_shell(cli, checkpoint):
    words = ["--sequence_length", "16", "--prefill_buckets", "16", "--fail-on", "host,unsupported,memory"]
    result = cli("neuron", "check", str(checkpoint), *words, "--json")
    assert result.code == 0
    assert (result.json["tier"]["value"], result.json["placed_share"], result.json["failed_on"]) == (1, 1.0, [])


def test_move_to_another_instance(cli, tmp_path):
    from transformers import ResNetConfig

    sizes = {"embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1]}
    ResNetConfig(**sizes, architectures=["ResNetForImageClassification"]).save_pretrained(tmp_path)
    words = ("neuron", "check", str(tmp_path), "--from", "inf1")
    data = cli(*words, "--to", "inf2", "--json").json
    assert (data["from"], data["to"]) == ("inf1", "inf2") and len(data["changes"]) == 3
    text = cli(*words, "--to", "inf2").stdout
    assert "8 GiB DRAM" in text and "same place on both" in text and "3. In scripts" in text
    back = cli("neuron", "check", str(tmp_path), "--from", "inf2", "--to", "trn1").stdout
    assert "Nothing has to change" in back
    assert cli(*words).code == 1 and "--to is missing" in cli(*words).stderr
    assert cli(*words, "--to", "inf2", "--fail-on", "host").code == 1


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0.0 %"), (1e-6, "<0.1 %"), (0.0005, "0.1 %"), (0.5, "50.0 %"), (0.99951, ">99.9 %"), (1, "100.0 %")],
)
def test_share_is_never_rounded_to_0_or_100_percent(share, text):
    assert percent(share) == text

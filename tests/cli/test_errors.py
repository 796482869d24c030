import io
import json
import os

import pytest

from optimum_neuron import errors
from optimum_neuron.cli import Out, next_command, run_guarded
from optimum_neuron.cli.errors import NEXT_COMMANDS

ERROR = errors.ConfigError("batch_size is 0.", hint="Pass batch_size=1 or more.")


def guarded(mode, func):
    out = Out(mode, stdout=io.StringIO(), stderr=io.StringIO())
    code = run_guarded(func, out, command="optimum-cli neuron demo")
    return code, out.stdout.getvalue(), out.stderr.getvalue()


def raiser(error):
    def func(out):
        raise error

    return func


def all_error_classes(base=errors.NeuronError):
    return [base, *(cls for child in base.__subclasses__() for cls in all_error_classes(child))]


def test_known_error_has_no_traceback():
    code, stdout, stderr = guarded("human", raiser(ERROR))
    assert (code, stdout) == (1, "")
    assert stderr == (
        "error: batch_size is 0.\n"
        "  Pass batch_size=1 or more.\n"
        "next: optimum-cli neuron demo --help  # lists the options\n"
    )


def test_busy_cores_lead_to_free_ones():
    variables = ["NEURON_RT_VISIBLE_CORES=1", "OPTIMUM_NEURON_INSTANCE=inf2.24xlarge"]
    error = errors.CoreBusyError("Core 0 is held.", hint="Wait.", variables=variables)
    assert next_command(error, "optimum-cli neuron demo").startswith(
        "NEURON_RT_VISIBLE_CORES=1 optimum-cli neuron demo"
    )
    nowhere = errors.CoreBusyError("Core 0 is held.", hint="Wait.", variables=[])
    assert next_command(nowhere, "optimum-cli").startswith("OPTIMUM_NEURON_INSTANCE=INSTANCE optimum-cli")


def test_debug_adds_traceback(monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_DEBUG", "1")
    code, _, stderr = guarded("human", raiser(ERROR))
    assert code == 1
    assert stderr.startswith("Traceback (most recent call last)")
    assert "in func" in stderr and "error: batch_size is 0" in stderr


def test_invalid_debug_variable_is_an_error(monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_DEBUG", "perhaps")
    calls = []
    code, _, stderr = guarded("human", lambda out: calls.append(1) or 0)
    assert (code, calls) == (1, [])
    assert "OPTIMUM_NEURON_DEBUG=perhaps" in stderr and "Traceback" not in stderr


def test_json_error_is_object_on_stdout():
    error = errors.DeviceMemoryError("too large", needed_bytes=5)
    code, stdout, stderr = guarded("json", raiser(error))
    assert (code, stderr) == (1, "")
    assert json.loads(stdout) == {
        "error": {
            "type": "DeviceMemoryError",
            "code": "device_memory",
            "message": "too large",
            "hint": "",
            "details": {"needed_bytes": 5},
            "next_command": next_command(error, "optimum-cli neuron demo"),
        }
    }


def test_unknown_errors_keep_their_traceback():
    with pytest.raises(ZeroDivisionError):
        guarded("human", raiser(ZeroDivisionError()))


def test_ctrl_c_is_130_without_traceback():
    code, stdout, stderr = guarded("human", raiser(KeyboardInterrupt()))
    assert (code, stdout, stderr) == (130, "", "warning: stopped by Ctrl-C\n")


def test_exit_code_of_command_is_returned_and_defaults_to_0():
    assert guarded("human", lambda out: 1)[0] == 1 and guarded("human", lambda out: None)[0] == 0


def test_stray_prints_do_not_reach_stdout():
    def func(out):
        print("loading weights ...")
        out.result({"a": 1}, human=lambda out, data: None, brief="")
        return 0

    code, stdout, stderr = guarded("json", func)
    assert (code, json.loads(stdout), stderr) == (0, {"a": 1}, "loading weights ...\n")


def test_closed_pipe_ends_command_quietly():
    read, write = os.pipe()
    os.close(read)
    stderr = io.StringIO()
    with os.fdopen(write, "w") as stdout:
        out = Out("human", stdout=stdout, stderr=stderr)
        assert run_guarded(lambda out: out.text("line") or 0, out, command="x") == 141
    assert stderr.getvalue() == ""


def test_broken_pipe_other_than_stdout_is_raised():
    with pytest.raises(BrokenPipeError):
        guarded("human", raiser(BrokenPipeError("worker died")))


@pytest.mark.parametrize("cls", all_error_classes(), ids=lambda cls: cls.__name__)
def test_every_error_class_has_next_command(cls):
    hint = next_command(cls("message"), "optimum-cli export neuron")
    assert "{" not in hint
    assert "optimum-cli " in hint and "  # " in hint


def test_next_commands_exist(cli):
    pages = {}
    for hint in NEXT_COMMANDS.values():
        words = hint.format(command="optimum-cli export neuron").partition("#")[0].split()
        words = words[words.index("optimum-cli") + 1 :]
        path = [word for word in words if word.islower() and word.isalpha() and word != "none"]
        page = pages.setdefault(tuple(path), cli(*path, "--help").stdout)
        assert f"usage: optimum-cli {' '.join(path)} " in page
        assert all(word.strip(",") in page for word in hint.split() if word.startswith("--"))
    assert len(pages) >= 4


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.ModelError("no such folder", model="smolm2"), "neuron fetch"),
        (errors.ModelError("no such task"), "neuron models"),
        (errors.WeightsError("missing"), "neuron inspect"),
        (errors.ConfigError("NEURON_RT_NUM_CORES=two", variable="NEURON_RT_NUM_CORES"), "neuron doctor"),
        (errors.ConfigError("batch_size=0"), "COMMAND --help"),
        (errors.ValidationError("drift", auto_cast="all", torch_dtype="float32"), "--auto_cast none"),
        (errors.ValidationError("drift", auto_cast="none", torch_dtype="float16"), "--torch_dtype"),
        (errors.ValidationError("drift", auto_cast="none", torch_dtype="float32"), "--atol"),
    ],
)
def test_next_command_depends_on_details(error, words):
    assert words in next_command(error, "COMMAND")


def test_out_of_memory_hint_names_no_missing_option():
    assert "--instance" not in next_command(errors.DeviceMemoryError(""), "optimum-cli neuron estimate")


def test_missing_model_and_missing_task_have_different_next_commands(cli, checkpoint):
    for words, command in ((["./no_such_folder"], "fetch"), ([str(checkpoint), "--task", "no-such-task"], "models")):
        result = cli("neuron", "check", *words)
        assert result.code == 1 and f"next: optimum-cli neuron {command}" in result.stderr

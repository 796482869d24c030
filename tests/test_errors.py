"""The exception tree and the form of a refusal."""

from __future__ import annotations

import inspect
import pickle

import pytest

from optimum_neuron import errors
from optimum_neuron.errors import NeuronError, nearest

CLASSES = [getattr(errors, name) for name in errors.__all__ if isinstance(getattr(errors, name), type)]


def test_documented_error_tree_matches_code():
    output, path = {}, []
    for line in inspect.getdoc(errors).splitlines():
        name = line.lstrip(" |+-").split()
        if not name or not name[0].endswith("Error") or not line.startswith("    "):
            continue
        depth = (len(line) - len(line.lstrip(" |+-")) - 4) // 4
        path[depth:] = [name[0]]
        output[name[0]] = (path[depth - 1] if depth else "Exception", name[1].strip("()") if len(name) > 1 else "")
    assert output.keys() == {cls.__name__ for cls in CLASSES}
    for cls in CLASSES:
        parent, builtin = output[cls.__name__]
        bases = [base.__name__ for base in cls.__bases__]
        assert bases == [parent, builtin] if builtin.endswith("Error") else bases == [parent]


def test_every_error_is_listed_and_list_is_sorted():
    defined = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert defined == {cls.__name__ for cls in CLASSES}
    assert list(errors.__all__) == sorted(errors.__all__, key=lambda name: (name.islower(), name))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_details_are_a_separate_dictionary(cls):
    error = cls("message", needed=3)
    assert str(error) == "message" and error.details == {"needed": 3} and cls("other").details == {}
    assert isinstance(error, NeuronError)


def test_errors_subclass_builtin_exceptions():
    for cls, builtin in [
        (errors.ConfigError, ValueError),
        (errors.WeightsError, ValueError),
        (errors.FormatVersionError, ValueError),
        (errors.DeviceMemoryError, MemoryError),
        (errors.CollectiveError, RuntimeError),
        (errors.CoreBusyError, RuntimeError),
        (errors.CacheError, OSError),
        (errors.LoweringError, RuntimeError),
    ]:
        with pytest.raises(builtin):
            raise cls("message")


def test_error_has_its_parts_and_survives_process():
    error = errors.ConfigError("batch_size is 0.", hint="Pass 1 or more.", option="batch_size", value=0)
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert str(one) == "batch_size is 0. Pass 1 or more."
        parts = {"message": "batch_size is 0.", "hint": "Pass 1 or more.", "code": "config", "type": "ConfigError"}
        assert one.to_dict() == parts | {"details": {"option": "batch_size", "value": 0}}
    assert errors.UnsupportedDtypeError.code == "unsupported_dtype" and errors.NeuronError.code == "neuron"
    assert str(errors.CacheError("The table:\n  a 1", hint="Free it.")).endswith("a 1\nFree it.")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("batchsize", ", did you mean 'batch_size'?"),
        ("Task", ", did you mean 'task'?"),
        ("completely different", ""),
        ("", ""),
    ],
)
def test_only_close_names_are_suggested(name, hint):
    assert nearest(name, iter(["batch_size", "task", "sequence_length"])) == hint
    assert nearest(name, []) == ""

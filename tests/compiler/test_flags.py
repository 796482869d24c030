"""Compiler flags: effects, flags without effect, and errors."""

import warnings

import pytest

from optimum_neuron.compiler import CompilerFlags, arithmetic_options, parse_flags
from optimum_neuron.compiler.flags import KNOWN_FLAGS
from optimum_neuron.errors import ConfigError
from tests.raising import raises


@pytest.mark.parametrize("nothing", [None, "", [], ()])
def test_defaults_apply_without_flags(nothing):
    assert parse_flags(nothing) == CompilerFlags()
    flags = CompilerFlags()
    assert (flags.auto_cast, flags.auto_cast_type, flags.optlevel, flags.target) == ("none", "bf16", "2", None)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--target trn1", {"target": "trn1"}),
        ("--target=trn2 --lnc 2", {"target": "trn2", "lnc": 2}),
        (["--auto-cast", "matmult", "--auto-cast-type", "fp16"], {"auto_cast": "matmul", "auto_cast_type": "fp16"}),
        (["--auto-cast=all"], {"auto_cast": "all"}),
        ("-O1", {"optlevel": "1"}),
        ("-O 3", {"optlevel": "3"}),
        ("--optlevel=1", {"optlevel": "1"}),
        ("-lnc=1", {"lnc": 1}),
        ("--logical-nc-config 2", {"lnc": 2}),
        ("--implicit-integer-downcast dot,pow", {"implicit_integer_downcast": ("dot", "pow")}),
        ("--implicit-integer-downcast default", {}),
        ("--framework XLA --enable-mixed-precision-accumulation", {}),
        ("--logfile=a.txt --temp-dir=/tmp/work", {"logfile": "a.txt", "temp_dir": "/tmp/work"}),
        ("-O1 --optlevel 3 --auto-cast all --auto-cast none", {"optlevel": "3"}),
    ],
)
def test_last_flag_wins(arguments, expected):
    assert parse_flags(arguments) == CompilerFlags(**expected)


def test_flags_without_effect_are_reported_in_one_warning():
    flags = parse_flags("--model-type=transformer --verbose info --enable-saturate-infinity")
    with pytest.warns(UserWarning) as records:
        flags.warn_ineffective()
    (message,) = [str(warning.message) for warning in records]
    assert "--model-type transformer (fusions" in message and "--enable-saturate-infinity (inf" in message
    assert records[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parse_flags("--target inf2 -O1").warn_ineffective()


def test_all_problems_are_reported_with_nearest_flag():
    words = "--auto-cats all --optlevel 9 --auto-cast-type --enable-saturate-infinity=1 model.hlo --lnc 1,2"
    wrong = ["--auto-cats", "all", "--optlevel", "--auto-cast-type", "model.hlo", "--logical-nc-config"]
    with raises(ConfigError, option="compiler_args", value=words, flags=wrong) as error:
        parse_flags(words)
    assert len(error.value.details["problems"]) == len(wrong)


def test_every_flag_is_accepted_with_a_value():
    values = {"--target": "trn1", "--auto-cast": "none", "--auto-cast-type": "tf32", "--native-int64": "enabled"}
    values |= {"--optlevel": "2", "-O": "2", "-lnc": "1", "--lnc": "1", "--logical-nc-config": "1"}
    values |= {"--framework": "XLA", "--model-type": "generic", "--distribution-strategy": "llm-training"}
    values |= {"--implicit-integer-downcast": "none", "--verbose": "debug", "--logfile": "a.txt"}
    values |= {"--temp-dir": "b", "--compile_workdir": "b", "--output": "b.neff", "--hbm-scratchpad-page-size": "1"}
    for flag in KNOWN_FLAGS:
        assert parse_flags([flag, values[flag]] if flag in values else [flag])


def test_environment_flags_apply_where_call_has_none():
    flags = parse_flags("--auto-cast none", defaults=("--auto-cast", "all", "-O1", "--target=trn2"))
    assert (flags.auto_cast, flags.optlevel, flags.target) == ("none", "1", "trn2")
    with raises(ConfigError, option="NEURON_CC_FLAGS", flags=["--no-such-flag"]):
        parse_flags("-O1", defaults=("--no-such-flag",))


def test_flags_of_inner_stages_have_no_effect_and_are_named():
    words = "--tensorizer-options='--vectorize-strided-dma' --internal-max-instruction-limit=15000000 --verbose=35"
    assert [text.split()[0] for text in parse_flags(words).ineffective] == [
        "--tensorizer-options",
        "--internal-max-instruction-limit",
        "--verbose",
    ]


def test_stages_behind_pipeline_are_its_words_and_the_workdir_is_the_temp_dir():
    # As the matmul tutorial of the NKI samples sets NEURON_CC_FLAGS.
    flags = parse_flags("--pipeline compile SaveTemps --target trn3 --internal-x='a,b' --compile_workdir /work")
    assert (flags.target, flags.temp_dir) == ("trn3", "/work")
    assert [text.split()[0] for text in flags.ineffective] == ["--pipeline", "--internal-x"]


def test_only_explicit_flags_become_options():
    assert arithmetic_options(()) == {} and arithmetic_options(("--target", "trn2")) == {}
    assert arithmetic_options(("--auto-cast=matmult", "-O3")) == {"auto_cast": "matmul", "optlevel": "3"}
    with pytest.warns(UserWarning, match="--model-type"):
        arithmetic_options(("--model-type", "transformer"))

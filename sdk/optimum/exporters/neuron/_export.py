"""`main_export` with the arguments of Optimum Neuron: `compiler_kwargs` in a dictionary, and `do_validation`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optimum_neuron
from optimum_neuron.errors import ConfigError
from optimum_neuron.exporters import ExportReport
from optimum_neuron.options.peer_attributes import upstream_rules


def main_export(
    model_name_or_path: str | Path,
    output: str | Path,
    compiler_kwargs: Mapping[str, Any] | None = None,
    *,
    do_validation: bool = True,
    **options: Any,
) -> ExportReport:
    """Compile a checkpoint and save it.

    Args:
        model_name_or_path: folder, id on the Hub, or a name that `optimum-cli neuron fetch` knows.
        output: folder to write.
        compiler_kwargs: options such as `auto_cast`, `auto_cast_type`, and `optlevel`.
        do_validation: compare with the original model.
        **options: as of `optimum_neuron.main_export`.

    Raises:
        ConfigError: an option is given twice, with two values.
        NeuronError: as `optimum_neuron.main_export`.
    """
    given = dict(compiler_kwargs or {})
    twice = {name: (given[name], options[name]) for name in given if options.get(name, given[name]) != given[name]}
    if twice:
        pairs = ", ".join(f"{name}={one!r} and {other!r}" for name, (one, other) in twice.items())
        raise ConfigError(
            f"{pairs}: compiler_kwargs and the keywords differ. Pass each option once.",
            options=sorted(twice),
        )
    options.setdefault("disable_validation", not do_validation)
    with upstream_rules():
        return optimum_neuron.main_export(model_name_or_path, output, **{**options, **given})

"""The guard of the vendor's import names: two distributions that own the same files cannot both be installed.

from optimum_neuron.vendor import refuse_beside

refuse_beside("torch-neuronx", __name__)
"""

from __future__ import annotations

import importlib.metadata

from .errors import refusal

SDK_DISTRIBUTION = "optimum-neuron-sim-sdk"
"""The distribution with the vendor's import names."""
INSTALL_SDK = f"`pip install {SDK_DISTRIBUTION}`, or `pip install ./sdk` in a checkout"
"""How it is installed, from an index and from a checkout."""


def refuse_beside(distribution: str, module: str) -> None:
    """Refuse to import a module of the sdk distribution where the vendor's distribution is installed.

    Args:
        distribution: the vendor's, for example "torch-neuronx".
        module: what is imported.

    Raises:
        ImportError: the vendor's is installed; the message has the commands for either choice.

    Example:
        ```python
        from optimum_neuron.vendor import refuse_beside

        refuse_beside("no-such-distribution", "torch_neuronx")
        ```
    """
    try:
        version = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return
    raise ImportError(
        refusal(
            asked=f"import {module}",
            found=f"{SDK_DISTRIBUTION} and the vendor's {distribution} {version} are both installed",
            why=f"both distributions own the files of {module.replace('.', '/')}, so one has overwritten the other",
            do=f"for the simulator, `pip uninstall {distribution} {SDK_DISTRIBUTION}`, then "
            f"{INSTALL_SDK}; for the hardware, uninstall both, then `pip install {distribution}` (the simulator "
            "stays importable as `optimum_neuron`)",
        ),
        name=module,
    )

"""The guard of the vendor's import names: two distributions that own the same files cannot both be installed.

>>> from optimum_neuron.base.vendor import refuse_beside
>>> refuse_beside("no-such-distribution", "torch_neuronx")
"""

from __future__ import annotations

import importlib.metadata

SDK_DISTRIBUTION = "optimum-neuron-sim-sdk"
"""The distribution with the vendor's import names."""
INSTALL_SDK = f"`pip install {SDK_DISTRIBUTION}`, or `pip install ./sdk` in a checkout"
"""Install commands, from an index and from a checkout."""

SIMULATED = "optimum-neuron-sim"
"""Value of INSTALLER in distributions that exist only for libraries that ask for the vendor's version."""


def refuse_beside(distribution: str, module: str, *, own: str = SDK_DISTRIBUTION, install: str = INSTALL_SDK) -> None:
    """Refuse to import a module of a distribution of ours where the vendor's distribution is installed.

    Args:
        distribution: the vendor's, for example "torch-neuronx".
        own: the distribution of ours.
        install: how it is installed.
    """
    found = importlib.metadata.distributions(name=distribution)
    version = next((one.version for one in found if one.read_text("INSTALLER") != SIMULATED), None)
    if version is None:
        return
    raise ImportError(
        f"{module} cannot be imported: {own} and the vendor's {distribution} {version} are both "
        f"installed, and only one of them can have its names. For the simulator, run `pip uninstall {distribution} "
        f"{own}`, then {install}. For the hardware, uninstall both, then run `pip install "
        f"{distribution}` (the simulator stays importable as `optimum_neuron`).",
        name=module,
    )

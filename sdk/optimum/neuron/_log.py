"""The logger of these packages. It is not under "optimum", whose logger passes nothing on to the root."""

import logging

logger = logging.getLogger("optimum_neuron.sdk")

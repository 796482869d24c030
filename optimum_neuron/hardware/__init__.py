"""The hardware catalogue: NeuronCores, chips, instances and targets, every number with its source.

It has published facts only: no timing model, no model sizes, no torch.

    >>> from optimum_neuron.hardware import resolve_instance
    >>> choice = resolve_instance("trn1", environ={})
    >>> choice.value.name, choice.reason
    ('trn1.2xlarge', "instance_type='trn1': smallest size of trn1")
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""The configuration of a training run, and the model and the optimizer that follow from it.

config = neuronx_distributed_config(tensor_parallel_size=2, optimizer_config={"zero_one_enabled": True})
model = initialize_parallel_model(config, build_model)
optimizer = initialize_parallel_optimizer(config, torch.optim.AdamW, model.parameters(), lr=1e-3)
"""

from __future__ import annotations

import functools
import inspect
import logging
import zlib
from collections.abc import Callable, Iterable, Mapping
from pprint import pformat
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from ..base.foreign import module_facts
from ..base.model_facts import facts_of
from ..errors import ConfigError, ModelError, RuntimeConfigError, invalid_choice
from . import parallel_state
from .activation_checkpoint import apply_activation_checkpointing
from .agreement import exchanged, require_agreement
from .attributes import is_of_expert
from .lora import get_lora_model
from .lora_config import LoraConfig
from .model import NxDModel
from .moving import get_device, move_model_to_device
from .optimizer import NxDOptimizer
from .padding import pad_model as pad
from .pipeline import NxDPPModel
from .zero import NeuronEPZero1Optimizer, NeuronZero1Optimizer

Config = dict[str, Any]
_logger = logging.getLogger("Neuron")
_OPTIMIZER = {"zero_one_enabled": False, "grad_clipping": True, "max_grad_norm": 1.0}


def neuronx_distributed_config(
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    expert_parallel_size: int = 1,
    context_parallel_size: int = 1,
    pipeline_config: Config | None = None,
    optimizer_config: Config | None = None,
    activation_checkpoint_config: object = None,
    pad_model: bool = False,
    sequence_parallel: bool = False,
    model_init_config: Config | None = None,
    lora_config: LoraConfig | None = None,
    mixed_precision_config: Config | None = None,
    sequential_move_factor: int = 11,
    lnc_size: int = 1,
) -> Config:
    """Return a configuration with its defaults filled in, and make the groups of ranks if torch.distributed has begun.

    Args:
        tensor_parallel_size: number of ranks that divide tensors.
        pipeline_parallel_size: number of stages.
        expert_parallel_size: number of ranks that divide experts.
        context_parallel_size: number of ranks that divide sequences.
        pipeline_config: arguments of the pipeline.
        optimizer_config: `zero_one_enabled`, `grad_clipping`, `max_grad_norm`.
        activation_checkpoint_config: "full", or the classes whose activations are computed again.
        pad_model: add heads until ranks can divide them.
        sequence_parallel: sum gradients of parameters that are used on parts of a sequence.
        model_init_config: `meta_device_init`, `param_init_fn`, `sequential_move_factor`.
        lora_config: options of LoRA.
        mixed_precision_config: `use_master_weights`, `use_fp32_grad_acc`, `use_master_weights_in_ckpt`.
        sequential_move_factor: how many ranks move a model at once, on hardware.
        lnc_size: physical cores of a core.

    Raises:
        ConfigError: an option is unknown, options contradict each other, or ranks have other options.
        RuntimeConfigError: the degrees do not divide the ranks, or an option needs ZeRO-1.
    """
    optimizer_config = _filled("optimizer_config", optimizer_config, **_OPTIMIZER)
    init = _of_initialization(model_init_config, sequential_move_factor)
    precision = _of_precision(mixed_precision_config, bool(optimizer_config["zero_one_enabled"]))
    config = {
        "tensor_parallel_size": tensor_parallel_size,
        "pipeline_parallel_size": pipeline_parallel_size,
        "expert_parallel_size": expert_parallel_size,
        "context_parallel_size": context_parallel_size,
        "pipeline_config": pipeline_config,
        "optimizer_config": optimizer_config,
        "activation_checkpoint_config": activation_checkpoint_config,
        "pad_model": pad_model,
        "sequence_parallel": sequence_parallel,
        "model_init_config": init,
        "lora_config": lora_config,
        "mixed_precision_config": precision,
        "lnc_size": lnc_size,
    }
    if dist.is_initialized():
        _begin(config)
    return config


def _begin(config: Config) -> None:
    """Make the groups of ranks, which must have the same options."""
    _make_groups(config)
    switches = {**config["optimizer_config"], **config["mixed_precision_config"]}
    plain = {name: config[name] for name in ("sequence_parallel", "pad_model", "lora_config")}
    recomputed = str(config["activation_checkpoint_config"])  # classes of a script can have no name to send
    require_agreement("options", {**switches, **plain, "activation_checkpoint_config": recomputed})
    if parallel_state.is_global_rank_zero():
        _logger.info("NxD config: \n%s", pformat(config))


def _of_precision(given: Config | None, zero: bool) -> Config:
    """Options of precision, which ZeRO-1 alone has."""
    precision = _filled(
        "mixed_precision_config",
        given,
        use_master_weights=zero,
        use_fp32_grad_acc=zero,
        use_master_weights_in_ckpt=False,
    )
    set_options = sorted(name for name, value in precision.items() if value)
    if set_options and not zero:
        message = f"mixed_precision_config has {', '.join(set_options)}, and the optimizer is not ZeRO-1."
        hint = "Pass optimizer_config={'zero_one_enabled': True}, or False for them."
        raise RuntimeConfigError(message, hint=hint, options=set_options)
    return precision


def _of_initialization(given: Config | None, factor: int) -> Config:
    init = _filled(
        "model_init_config", given, sequential_move_factor=factor, meta_device_init=False, param_init_fn=None
    )
    if init["meta_device_init"] and init["param_init_fn"] is None:
        message = "meta_device_init makes a model without values."
        raise ConfigError(message, hint="Pass param_init_fn too, which draws them.", option="param_init_fn")
    return init


def _filled(name: str, given: Mapping[str, Any] | None, **defaults: object) -> Config:
    """Options with their defaults, of which a warning tells where others were given."""
    if given is None:
        return dict(defaults)
    for key in given:
        if key not in defaults:
            raise invalid_choice(f"key of {name}", key, defaults)
    for key in defaults:
        if key not in given and parallel_state.is_global_rank_zero():
            _logger.warning("%s is not set, automatically set it to %s.", key, defaults[key])
    return {**defaults, **given}


def _make_groups(config: Config) -> None:
    """Make the groups. Groups that the script made for the same degrees stay."""
    axes = {
        "tensor_model_parallel_size": parallel_state.TENSOR,
        "pipeline_model_parallel_size": parallel_state.PIPELINE,
        "context_parallel_size": parallel_state.CONTEXT,
        "expert_model_parallel_size": parallel_state.EXPERT,
    }
    degrees = {name: config[name.replace("_model", "")] for name in axes}
    has_groups = parallel_state.model_parallel_is_initialized()
    if not has_groups or degrees != {name: axis.size() for name, axis in axes.items()}:
        parallel_state.initialize_model_parallel(**degrees, lnc_size=config["lnc_size"])


def initialize_parallel_model(
    nxd_config: Config,
    model_fn: Callable[..., nn.Module],
    include_buffers: bool = False,
    *args: object,
    **kwargs: object,
) -> NxDModel:
    """Build a model, and move it to this rank's device.

    Args:
        nxd_config: what `neuronx_distributed_config` returned.
        model_fn: builds the model.
        include_buffers: with `meta_device_init`, make buffers without values too.
        *args: arguments of `model_fn`.
        **kwargs: arguments of `model_fn`.
    """
    if not parallel_state.model_parallel_is_initialized():
        _make_groups(nxd_config)
    init, has_stages = nxd_config["model_init_config"], nxd_config["pipeline_parallel_size"] > 1
    if init["meta_device_init"]:
        model = _on_meta(model_fn, include_buffers, args, kwargs)
        _give_memory(model)
        _initialize(model, init["param_init_fn"])
    else:
        model = model_fn(*args, **kwargs)
    if nxd_config["pad_model"]:
        heads = facts_of(module_facts(model).config).num_attention_heads
        if heads is None:
            message = f"{type(model).__name__} has no config.num_attention_heads to pad."
            raise ModelError(message, hint="Call pad_model(model, tp_degree, n_heads).", model=type(model).__name__)
        pad(model, parallel_state.TENSOR.size(), heads)
    _warn_of_replicas(model)
    options = _of_pipeline(nxd_config["pipeline_config"]) if has_stages else {}
    cut = functools.partial(NxDPPModel, **options) if has_stages else None
    model = get_lora_model(model, nxd_config["lora_config"], cut)
    if not has_stages:  # stages have compared the models that they are of
        sizes = [one.numel() for one in model.parameters()]
        require_agreement("models", {"num_parameters": len(sizes), "num_elements": sum(sizes)})
        move_model_to_device(model, get_device())
    wrapped = NxDModel(model, nxd_config)
    chosen = nxd_config["activation_checkpoint_config"]
    if chosen is not None:
        is_of_stages = has_stages and chosen == "full"
        classes = (options["transformer_layer_cls"],) if is_of_stages else _checkpointed(model, chosen)
        apply_activation_checkpointing(wrapped, lambda module: isinstance(module, classes))
    return wrapped


def _warn_of_replicas(model: nn.Module) -> None:
    """Warn if ranks of data parallelism begin with other weights: no error, as a script can load equal ones later."""
    for axis, is_expert in ((parallel_state.ZERO1, False), (parallel_state.EXPERT_DATA, True)):
        starts = [one.detach().flatten()[:1024].cpu() for one in model.parameters() if is_of_expert(one) is is_expert]
        sums = [zlib.crc32(start.view(torch.uint8).numpy()) for start in starts]
        if any(other != sums for other in exchanged(sums, axis.group())) and axis.rank() == 0:
            text = "Ranks %s begin with other weights, and training does not make them equal. "
            text += "Set one seed before the model is built, or load a checkpoint."
            _logger.warning(text, axis.ranks())


def _of_pipeline(given: Config | None) -> Config:
    """Arguments of `NxDPPModel`; None is the default of each."""
    known = [name for name in inspect.signature(NxDPPModel).parameters if name != "module"]
    options = {name: value for name, value in (given or {}).items() if value is not None}
    for key in options:
        if key not in known:
            raise invalid_choice("key of pipeline_config", key, known)
    if "transformer_layer_cls" not in options:
        message = "A pipeline needs the class of the model's layers, which it does not cut."
        raise ConfigError(message, hint="Pass transformer_layer_cls in pipeline_config.", option="pipeline_config")
    return {**options, "use_optimizer_wrapper": True}


def _on_meta(model_fn: Callable[..., nn.Module], include_buffers: bool, args: Any, kwargs: Any) -> nn.Module:
    if include_buffers:
        with torch.device("meta"):
            return model_fn(*args, **kwargs)
    # A weight that another module has already stays the same weight.
    hook = register_module_parameter_registration_hook(
        lambda module, name, parameter: parameter if parameter.is_meta else _moved(parameter, "meta")
    )
    try:
        return model_fn(*args, **kwargs)
    finally:
        hook.remove()


def _moved(parameter: nn.Parameter, device: str) -> nn.Parameter:
    """A parameter without values that says the same about ranks."""
    own = nn.Parameter(torch.empty_like(parameter, device=device), requires_grad=parameter.requires_grad)
    vars(own).update(vars(parameter))
    return own


def _give_memory(model: nn.Module) -> None:
    """Give parameters and buffers memory, and keep what they say about ranks, and which of them are one."""
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None and parameter.is_meta:
                module._parameters[name] = made.setdefault(id(parameter), _moved(parameter, "cpu"))
        for name, buffer in list(module._buffers.items()):
            if buffer is not None and buffer.is_meta:
                module._buffers[name] = torch.empty_like(buffer, device="cpu")


@torch.no_grad()
def _initialize(model: nn.Module, param_init_fn: Callable[..., Any]) -> None:
    """Call a function for each module: those without parameters can have buffers, or make their children again."""
    for module in model.modules():
        param_init_fn(module, torch.device("cpu"))


def _checkpointed(model: nn.Module, chosen: Any) -> tuple[type[nn.Module], ...]:
    """Classes whose activations are computed again."""
    if chosen == "full":
        names = set(module_facts(model)._no_split_modules or ())
        found = {type(module) for module in model.modules() if type(module).__name__ in names}
        if not found:
            message = f"{type(model).__name__} does not say which of its modules are layers."
            hint = "Pass the class of its layers as activation_checkpoint_config."
            raise ModelError(message, hint=hint, model=type(model).__name__)
        return tuple(sorted(found, key=lambda one: one.__name__))
    return tuple(chosen) if isinstance(chosen, (list, tuple)) else (chosen,)


def initialize_parallel_optimizer(
    nxd_config: Config,
    optimizer_class: Callable[..., torch.optim.Optimizer],
    parameters: Iterable[Any],
    **defaults: object,
) -> NxDOptimizer:
    """Return an optimizer that averages and clips gradients over ranks before each step.

    Args:
        nxd_config: what `neuronx_distributed_config` returned.
        optimizer_class: the optimizer, such as `torch.optim.AdamW`.
        parameters: as of any optimizer.
        **defaults: arguments of the optimizer.
    """
    options, precision = nxd_config["optimizer_config"], nxd_config["mixed_precision_config"]
    if not options["zero_one_enabled"]:
        return NxDOptimizer(optimizer_class(parameters, **defaults), nxd_config)
    kind = NeuronEPZero1Optimizer if parallel_state.EXPERT.size() > 1 else NeuronZero1Optimizer
    optimizer = kind(
        parameters,
        optimizer_class,
        grad_clipping=options["grad_clipping"],
        max_norm=options["max_grad_norm"],
        pin_layout=False,
        use_grad_acc_hook=precision["use_fp32_grad_acc"],
        higher_cc_precision=precision["use_fp32_grad_acc"],
        save_master_weights=precision["use_master_weights_in_ckpt"],
        **defaults,
    )
    return NxDOptimizer(optimizer, nxd_config)

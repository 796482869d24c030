"""Lets torch.fx trace models of transformers: masks become nodes, and so do tensors whose size an input decides.

Masks are computed from the inputs of the model, so that each stage of a pipeline makes its own. Models have no caches.

    with as_nodes(tracer, model, input_proxy):
        graph = ...
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
from torch import nn

from ..base.foreign import module_facts
from ..base.model_facts import facts_of

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_FACTORIES = ("arange", "empty", "full", "ones", "zeros")


class Mask:
    """A function of transformers that makes a mask, with the configuration of its model.

    Args:
        function: the function.
        config: the configuration.
        dtype: of the embeddings, of which the function needs the shape alone.
    """

    def __init__(self, function: Callable[..., Any], config: PretrainedConfig, dtype: torch.dtype) -> None:
        self._function, self._config, self._dtype = function, config, dtype
        # The code of a graph names what it calls.
        self.__name__ = self.__qualname__ = function.__name__
        self.__module__ = __name__

    def __call__(self, of_input: torch.Tensor, **options: Any) -> Any:
        """Return the mask of a batch, or None if attention needs none.

        Args:
            of_input: an input of the model [batch, length, ...].
            **options: further arguments of the function.
        """
        embeddings = torch.empty((*of_input.shape[:2], 0), dtype=self._dtype, device=of_input.device)
        return self._function(config=self._config, inputs_embeds=embeddings, **options)


@contextlib.contextmanager
def as_nodes(tracer: torch.fx.Tracer, model: nn.Module, inputs: Callable[[], torch.fx.Proxy]) -> Iterator[None]:
    """Let masks, and tensors that are made in a size that depends on inputs, be nodes of the graph.

    Args:
        tracer: makes the nodes.
        model: the model.
        inputs: returns an input of the model.
    """
    dtype = next((one.dtype for one in model.parameters()), torch.get_default_dtype())
    masking = vars(sys.modules.get("transformers.masking_utils", nn))
    functions = {function for name, function in masking.items() if name.startswith("create_")}

    def mask(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(function).bind(*args, **kwargs).arguments
        node = Mask(function, given.pop("config"), dtype)
        del given["inputs_embeds"]
        return tracer.create_proxy("call_function", node, (inputs(),), given)

    def factory(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        values = [*args, *kwargs.values(), *(one for value in args if isinstance(value, tuple) for one in value)]
        if any(isinstance(value, torch.fx.Proxy) for value in values):
            return tracer.create_proxy("call_function", function, args, kwargs)
        return function(*args, **kwargs)

    with contextlib.ExitStack() as stack:
        for name in _FACTORIES:
            stack.enter_context(patch.object(torch, name, functools.partial(factory, getattr(torch, name))))
        for place in {type(one).__module__ for one in model.modules()} if functions else ():
            for name, function in list(vars(sys.modules[place]).items()):
                if inspect.isfunction(function) and function in functions:
                    stack.enter_context(patch.object(sys.modules[place], name, functools.partial(mask, function)))
        config = module_facts(model).config
        if config is not None and facts_of(config).use_cache:
            stack.enter_context(patch.object(config, "use_cache", False))
        yield

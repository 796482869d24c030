"""`nki_op`: kernels as operators of PyTorch, as `torch_neuronx.nki_op`.

The decorated function is Python that calls kernels, with torch operators around them. In a captured graph it is written
out: each kernel is one node, beside nodes of ATen.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..errors import ConfigError
from ..upstream.torch import CustomOpDef, FunctionalTensorMode, is_alias_of, tree_map_only
from .jit import Kernel, simulate

WRITTEN_OUT: dict[Any, Callable[..., Any]] = {}
"""Operators of `nki_op`, with the functions that they are made of."""


def nki_op(name: str, fn: Callable[..., Any] | None = None, mutates_args: str | Iterable[str] = ()) -> Any:
    """Make an operator of a function that calls kernels, as `@nki_op("library::name", mutates_args={})`.

    It is an operator of `torch.library.custom_op`: `register_autograd` gives it a gradient, `register_fake` another
    function of shapes. Without one, shapes come from the kernels.

    Args:
        name: "library::name".
        fn: the function, with annotated arguments.
        mutates_args: names of the arguments that it writes.

    Raises:
        ConfigError: `fn` is a kernel itself, whose arguments PyTorch cannot know.

    Example:
        ```python
        import torch

        from optimum_neuron.nki import isa as nisa, jit, language as nl, nki_op


        @jit
        def scale_kernel(x, factor):
            tile, out = nl.load(x), nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
            nisa.tensor_scalar(tile, tile, nl.multiply, factor)
            nl.store(out, tile)
            return out


        @nki_op("docs::scale", mutates_args={})
        def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
            return scale_kernel(x, factor)


        def backward(context, gradient):
            return scale(gradient, context.factor), None


        scale.register_autograd(backward, setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]))
        x = torch.ones(128, 4, requires_grad=True)
        scale(x, 3.0).sum().backward()
        assert (x.grad == 3).all()
        ```
    """
    if fn is None:
        return functools.partial(nki_op, name, mutates_args=mutates_args)
    if isinstance(fn, Kernel):
        message = f"nki_op {name!r} is given the kernel {fn.function.__name__} itself."
        raise ConfigError(message, hint="Decorate a function with annotated arguments that calls the kernel.", op=name)
    function = fn

    @functools.wraps(function)
    def apart(*args: object, **kwargs: object) -> Any:
        # An operator may not return its arguments, and a kernel may.
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]

        def own(value: torch.Tensor) -> torch.Tensor:
            return value.clone() if any(is_alias_of(value, one) for one in given) else value

        return tree_map_only(torch.Tensor, own, function(*args, **kwargs))

    operator: CustomOpDef = torch.library.custom_op(name, apart, mutates_args=mutates_args)
    operator.register_fake(apart)

    def write_out(mode: Any, op: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with mode:
            return apart(*args, **kwargs)

    operator.register_torch_dispatch(FunctionalTensorMode, write_out)
    WRITTEN_OUT[operator._opoverload] = apart
    return operator


wrap_nki = simulate
"""Returns a kernel that graphs may have, as every kernel here; `torch_neuronx.wrap_nki`."""

"""`nl.NKIObject`: classes of kernels, with a constructor of their annotated names as the hardware's compiler makes it.

>>> from optimum_neuron.nki.language import NKIObject
>>> class Options(NKIObject):
...     rows: int
...     scale: float = 1.0
>>> Options(128).scale, Options(rows=64, scale=0.5).rows
(1.0, 64)
"""

from __future__ import annotations

import inspect
from typing import Any

_PARAMETER = inspect.Parameter


class NKIObject:
    """Base of the classes that kernels use, beside enumerations; the hardware's compiler takes no others."""

    def __init__(self, **kwargs: object) -> None:
        if kwargs:
            raise TypeError(f"{type(self).__name__} has no {', '.join(kwargs)}")

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__init__ is NKIObject.__init__ or getattr(cls.__init__, "is_made", False):
            cls.__init__ = _initializer(cls)  # type: ignore[method-assign]


def _initializer(cls: type) -> Any:
    """Return a constructor that takes the names of a class with an annotation or a value; without one they are None."""
    bases = [base for base in reversed(cls.__mro__) if issubclass(base, NKIObject)]
    names = dict.fromkeys(name for base in bases for name in (*inspect.get_annotations(base), *_values_of(base)))
    kind = _PARAMETER.POSITIONAL_OR_KEYWORD
    own = [_PARAMETER(name, kind, default=getattr(cls, name, None)) for name in names]
    signature = inspect.Signature([_PARAMETER("self", kind), *own])

    def __init__(self: object, *args: object, **kwargs: object) -> None:  # noqa: N807 - it becomes the class's own
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        for name in names:
            object.__setattr__(self, name, bound.arguments[name])
        if callable(done := getattr(self, "__post_init__", None)):
            done()

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    __init__.is_made = True  # type: ignore[attr-defined]
    return __init__


def _values_of(cls: type) -> list[str]:
    """Return the names of a class that have a value and no annotation."""
    return [name for name, value in vars(cls).items() if not name.startswith("__") and not hasattr(value, "__get__")]


__all__ = ["NKIObject"]

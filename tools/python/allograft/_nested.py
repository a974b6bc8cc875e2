"""Nested structures: dicts, lists, tuples and dataclasses, taken apart into leaves and put together again."""
from __future__ import annotations

import copy
import dataclasses
from collections.abc import MutableMapping
from collections.abc import Iterator
from typing import Any


def children_of(thing: Any) -> Any:
    """(name, child) of a container in order, or None for a leaf."""
    if isinstance(thing, MutableMapping):
        return [("[%r]" % (key,), thing[key]) for key in thing]
    if isinstance(thing, (list, tuple)):
        return [("[%d]" % i, child) for i, child in enumerate(thing)]
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        names = [field.name for field in dataclasses.fields(thing) if hasattr(thing, field.name)]
        return [("." + name, getattr(thing, name)) for name in names]
    return None


def _copy_of_dataclass(thing: Any) -> Any:
    try:
        return copy.copy(thing)
    except AttributeError:  # a frozen one with slots cannot be copied while a field has no value
        return object.__new__(type(thing))


def leaves(thing: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, leaf) of all leaves in order."""
    children = children_of(thing)
    if children is None:
        yield path, thing
        return
    for name, child in children:
        yield from leaves(child, path + name)


def shape_of(thing: Any, path: str = "") -> list[tuple[str, str]]:
    """(path, type) of all containers in order: equal for structures whose leaves correspond."""
    children = children_of(thing)
    if children is None:
        return []
    found = [(path, type(thing).__name__ + "(%d)" % len(children))]
    for name, child in children:
        found += [(path + name, "")] + shape_of(child, path + name)
    return found


def rebuild(thing: Any, new_leaves: Iterator[Any]) -> Any:
    """The structure with other leaves: a copy of what has one that is not the same object, else itself."""
    children = children_of(thing)
    if children is None:
        return next(new_leaves)
    built = [rebuild(child, new_leaves) for _, child in children]
    if all(new is old for new, (_, old) in zip(built, children)):
        return thing
    return remade(thing, children, built)


def remade(thing: Any, children: Any, built: list[Any]) -> Any:
    """A copy of a container, whose children these were, with others in their place."""
    if isinstance(thing, MutableMapping):
        result = copy.copy(thing)
        for key, child in zip(list(thing), built):
            result[key] = child
        return result
    if isinstance(thing, list):
        return built
    if isinstance(thing, tuple):
        return type(thing)(*built) if hasattr(thing, "_fields") else tuple(built)
    result = _copy_of_dataclass(thing)
    for (name, _), child in zip(children, built):
        object.__setattr__(result, name[1:], child)
    return result

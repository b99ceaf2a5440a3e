"""What may be called: methods that were marked with `@rpc` or exported by name, and nothing else.

    class Rollout(Worker):
        @rpc
        def generate(self, prompts: list[str]) -> list[str]: ...

Every actor has `RemoteMethods` of its own. Functions marked with `@rpc(export=True)` belong to the
process: each of its actors answers them.
"""

import difflib
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])
MARK = "__rpc_name__"


class RemoteMethod(NamedTuple):
    function: Callable[..., Any]
    # In the I/O thread, so that it answers while user code runs; it must not wait.
    inline: bool = False


@overload
def rpc(name: F, /) -> F: ...
@overload
def rpc(
    name: str | None = None, *, like: Callable[..., Any] | None = None, export: bool = False
) -> Callable[[F], F]: ...
def rpc(name: Any = None, *, like: Callable[..., Any] | None = None, export: bool = False) -> Any:
    """Mark a method as callable by other actors, by its own name, another, or a stub's (`like`).

    With `export` a plain function becomes callable in every actor of the process.
    """
    if callable(name):
        return _mark(name, name.__name__)

    def decorate(function: F) -> F:
        told = name or (name_of(like) if like is not None else function.__name__)
        if export:
            EXPORTED.export(told, function)
        return _mark(function, told)

    return decorate


def name_of(method: str | Callable[..., Any]) -> str:
    """The name by which a method is called: given as text, or by the function itself."""
    return method if isinstance(method, str) else str(getattr(method, MARK, method.__name__))


class RemoteMethods:
    def __init__(self, owner: str = "this process") -> None:
        self.owner = owner
        self._methods: dict[str, RemoteMethod] = {}

    def export(self, name: str, function: Callable[..., Any], *, inline: bool = False) -> None:
        if not callable(function):
            raise TypeError(f"{name} cannot be exported: {function!r} is not callable")
        if name in self._methods:
            raise ValueError(f"{self.owner} exports a method {name!r} already")
        self._methods[name] = RemoteMethod(function, inline)

    def export_instance(self, instance: object, namespace: str | None = None) -> None:
        """Every marked method of an object, as `namespace.method`."""
        prefix = f"{namespace}." if namespace else ""
        for attribute, function in marked(type(instance)).items():
            self.export(prefix + name_of(function), getattr(instance, attribute))

    def find(self, name: str) -> RemoteMethod:
        """The method of that name; LookupError says which ones there are."""
        found = self._methods.get(name) or EXPORTED._methods.get(name)
        if found is None:
            raise LookupError(self._unknown(name))
        return found

    def names(self) -> list[str]:
        return sorted({*self._methods, *EXPORTED._methods})

    def _unknown(self, name: str) -> str:
        known = [known for known in self.names() if not known.startswith("__")]
        close = difflib.get_close_matches(name, known, n=1)
        if close:
            return f"{self.owner} has no remote method {name!r} (did you mean {close[0]!r}?)"
        offered = ", ".join(known) or "none; mark methods with @rpc"
        return f"{self.owner} has no remote method {name!r}; it has: {offered}"


EXPORTED = RemoteMethods()


def marked(cls: type) -> dict[str, Callable[..., Any]]:
    """The marked methods of a class, by attribute. Nothing is called to find them."""
    found = {}
    for attribute in dir(cls):
        function = inspect.getattr_static(cls, attribute)
        function = getattr(function, "__func__", function)  # static and class methods
        if callable(function) and hasattr(function, MARK):
            found[attribute] = function
    return found


def _mark(function: F, name: str) -> F:
    setattr(function, MARK, name)
    return function

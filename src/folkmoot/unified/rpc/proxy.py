"""An object elsewhere, used like one that is here: its class says which methods it has.

buffer = proxy(actor.call, "buffer", ReplayBuffer)
buffer.sample(32)           # waits for the result
await buffer.sample_later() # an `async def` is awaited
"""

import difflib
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from folkmoot.unified.rpc.call import Call
from folkmoot.unified.rpc.methods import marked, name_of

T = TypeVar("T")


def proxy(call: Callable[..., Call[Any]], namespace: str | None, cls: type[T]) -> T:
    """What stands for an exported instance of `cls` (`Methods.export_instance`)."""
    return cast(T, _Proxy(call, f"{namespace}." if namespace else "", cls))


class _Proxy:
    def __init__(self, call: Callable[..., Call[Any]], prefix: str, cls: type) -> None:
        self.__call = call
        self.__prefix = prefix
        self.__cls = cls
        self.__methods = marked(cls)

    def __getattr__(self, attribute: str) -> Callable[..., Any]:
        function = self.__methods.get(attribute)
        if function is None:
            close = difflib.get_close_matches(attribute, self.__methods, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else "; mark it with @rpc"
            raise AttributeError(f"{self.__cls.__name__} has no remote method {attribute!r}{hint}")
        name, later = self.__prefix + name_of(function), inspect.iscoroutinefunction(function)

        def remote(*args: Any, **kwargs: Any) -> Any:
            call = self.__call(name, *args, **kwargs)
            return call if later else call.result()

        return remote

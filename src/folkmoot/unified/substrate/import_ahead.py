"""Import what actors need, once and fast, in the process that they are forked from."""

import ctypes
import gc
import importlib
import importlib.util
import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path

logger = logging.getLogger("folkmoot.fork_server")
#: The largest shared library of a package: a fifth of the time of torch's import.
LIBRARIES = {"torch": "lib/libtorch_cpu.so"}


def import_ahead(modules: Sequence[str]) -> None:
    """Those that cannot be imported are left to the actor that needs them. No thread is left."""
    # What is imported stays: looking through it for what does not takes a tenth of the time.
    gc.disable()
    threads = [threading.Thread(target=_load, args=(module,)) for module in modules]
    for thread in threads:
        thread.start()
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # the actor that needs it will say so, in its own log
            logger.warning("%s cannot be imported beforehand: %s", module, error)
    for thread in threads:
        thread.join()
    gc.freeze()  # so that a collection in a child does not copy the pages we share
    gc.enable()


def _load(module: str) -> None:
    """Link a package's library beside the imports of others; without it, its import does so."""
    if module not in LIBRARIES or not (spec := importlib.util.find_spec(module)):
        return
    for folder in spec.submodule_search_locations or ():
        library = Path(folder) / LIBRARIES[module]
        if library.is_file():
            # A foreign call, unlike `CDLL(path)`, lets others run meanwhile.
            ctypes.CDLL(None).dlopen(os.fsencode(library), os.RTLD_NOW)

"""What a participant's owner writes: a class that trains, in numpy, on data that stays where it is.

    class Mine(Participant):
        def init_weights(self):
            return {"w": np.zeros(10, np.float32)}

        def train_round(self, weights, epochs, epoch_base):
            ...
            return {"w": new}, number_of_samples, {"loss": [0.3, 0.2]}

    join_federation(Mine(), address="127.0.0.1:50061", run_id="mine")

Models are named arrays, or one array alone. The weights that `train_round` gets are read-only:
they are the coordinator's own bytes, mapped and not copied.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from folkmoot.core.user_error import UserError
from folkmoot.federated.model_file.layout import Array, layout_of

#: The name under which a model of one array travels.
ALONE = "weights"

Model = Array | Mapping[str, Array]
History = Mapping[str, Sequence[float]]


class Participant(ABC):
    """Subclass this. Methods are called one at a time, on a thread of their own."""

    @abstractmethod
    def init_weights(self) -> Model:
        """The first weights; asked for when the federation begins with none."""

    @abstractmethod
    def train_round(self, weights: Any, epochs: int, epoch_base: int) -> tuple[Model, int, History]:
        """Train for `epochs` epochs, of which `epoch_base` came before.

        The new weights, the number of samples they were trained on, and a history: for each name
        a value an epoch. With a fourth parameter `config` it also gets the round's settings.
        """

    def evaluate(self, weights: Any) -> tuple[float, int, Mapping[str, float]]:
        """What the global model is worth on our data: loss, number of samples, other metrics.

        Asked for before `train_round`, if this is overridden and the coordinator wants it.
        """
        raise NotImplementedError

    def properties(self) -> Mapping[str, bool | int | float | str]:
        """What to say of ourselves when we register: what the owner's `require` may ask for."""
        return {}

    def metrics(self) -> Mapping[str, Any]:
        """Figures to report with the update: numbers or arrays of numbers, by name."""
        return {}


class RoundResult(NamedTuple):
    """What training a round gave, and the model it began with."""

    round: int
    digest: bytes
    arrays: Mapping[str, Array]
    reference: Mapping[str, Array]
    samples: int
    history: str
    #: Of the model it began with, if it was asked for.
    evaluation: "FoundEvaluation | None" = None


class FoundEvaluation(NamedTuple):
    """What a participant's `evaluate` returned, as it is sent."""

    loss: float
    samples: int
    metrics: str


class BadResult(UserError):
    """A participant's method returned something that cannot be sent; the message says what."""


def named(model: Any) -> dict[str, Array]:
    """`model` as named arrays."""
    if isinstance(model, np.ndarray):
        return {ALONE: model}
    if isinstance(model, Mapping) and model:
        wrong = [k for k, v in model.items() if not isinstance(v, np.ndarray | np.generic)]
        if not wrong and all(isinstance(k, str) for k in model):
            return {k: np.asarray(v) for k, v in model.items()}
        raise BadResult(f"weights must be numpy arrays by name; {wrong[:3]} are not")
    raise BadResult(f"weights must be an array or a mapping of arrays, not {type(model).__name__}")


def as_given(arrays: dict[str, Array]) -> Any:
    """Named arrays as a participant sees them: an array alone is given alone."""
    return arrays[ALONE] if arrays.keys() == {ALONE} else arrays


def checked_result(result: Any) -> tuple[dict[str, Array], int, str]:
    """What `train_round` returned, as it is sent: arrays, samples, history in JSON."""
    if not isinstance(result, tuple) or len(result) != 3:
        raise BadResult("train_round must return (weights, number_of_samples, history)")
    model, samples, history = result
    if isinstance(samples, bool) or not isinstance(samples, int | np.integer):
        raise BadResult(f"number_of_samples must be an int, not {type(samples).__name__}")
    if not 0 <= int(samples) < 2**31:
        raise BadResult(f"number_of_samples must be from 0 to {2**31 - 1}, got {samples}")
    arrays = named(model)
    layout_of(arrays)  # a dtype that cannot travel is the owner's to know
    return arrays, int(samples), encode_figures(history)


def can_evaluate(participant: Participant) -> bool:
    return type(participant).evaluate is not Participant.evaluate


def takes_config(method: Callable[..., Any]) -> bool:
    """Whether an owner's method wants the round's settings."""
    parameters = inspect.signature(method).parameters
    return "config" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def checked_evaluation(result: Any) -> FoundEvaluation:
    """What `evaluate` returned, as it is sent."""
    if not isinstance(result, tuple) or len(result) != 3:
        raise BadResult("evaluate must return (loss, number_of_samples, metrics)")
    loss, samples, metrics = result
    if not np.isfinite(float(loss)):
        raise BadResult(f"evaluate returned a loss of {loss}; expected a finite number")
    if isinstance(samples, bool) or not isinstance(samples, int | np.integer) or samples < 1:
        raise BadResult(f"evaluate must say on how many samples, 1 or more; got {samples!r}")
    numbers = {name: float(value) for name, value in metrics.items()}
    return FoundEvaluation(float(loss), int(samples), encode_figures(numbers))


def encode_figures(figures: Mapping[str, Any]) -> str:
    """Metrics or history in JSON; arrays become lists."""
    try:
        return msgspec.json.encode(dict(figures), enc_hook=_plain).decode()
    except (TypeError, ValueError) as error:
        raise BadResult(f"metrics and history must be numbers by name: {error}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is neither a number nor an array")

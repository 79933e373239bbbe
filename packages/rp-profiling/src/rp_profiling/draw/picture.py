"""One picture as arrays."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

TIME = 'time [s]'


@dataclass(frozen=True)
class Layer:
    """One line, area or cloud of points: (x, y)."""

    name: str
    colour: str
    x: Array
    y: Array


@dataclass(frozen=True)
class Picture:
    """A picture of one `form`: `stack` (areas on top of each other), `steps`, `lines` or `points`.

    The x axis is time, unless `x_label` says otherwise; with `is_log` it is logarithmic.
    """

    name: str
    title: str
    form: str
    y_label: str
    layers: list[Layer] = field(default_factory=list)
    note: str = ''
    x_label: str = TIME
    is_log: bool = False

"""Draws the pictures of a session with matplotlib, into files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rp_profiling.draw.pictures import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ('png', 'svg', 'pdf')
_FEW = 500
_MOST_VECTORS = 20_000
"""Points drawn as shapes; more of them are drawn as an image, which keeps files small."""


def save(pictures: Iterable[Picture], directory: str | Path, form: str = 'png') -> list[Path]:
    """Draw each picture into `<directory>/<name>.<form>`, and return the files."""
    if form not in FORMATS:
        raise ValueError(f'pictures can be {", ".join(FORMATS)}, not {form!r}')
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    Path(directory).mkdir(parents=True, exist_ok=True)
    files = []
    for picture in pictures:
        figure = Figure(figsize=(9, 4.5), layout='constrained')
        FigureCanvasAgg(figure)   # needs no display, and not pyplot, which keeps figures
        draw(picture, figure.add_subplot())
        files.append(Path(directory) / f'{picture.name}.{form}')
        figure.savefig(files[-1], dpi=150)
    return files


def draw(picture: Picture, axes: Axes) -> None:
    """Draw a picture into matplotlib axes."""
    {'stack': _stack, 'steps': _steps, 'lines': _lines, 'points': _points}[picture.form](picture, axes)
    axes.set_title(picture.title)
    axes.set_xlabel(picture.x_label + (f'\n{picture.note}' if picture.note else ''), fontsize='small')
    axes.set_ylabel(picture.y_label)
    axes.margins(x=0)
    if picture.is_log:
        axes.set_xscale('log')
    axes.set_ylim(bottom=0)
    if picture.layers:
        axes.legend(loc='upper left', bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize='small')


def _stack(picture: Picture, axes: Axes) -> None:
    if picture.layers:
        axes.stackplot(picture.layers[0].x, np.stack([layer.y for layer in picture.layers]),
                       labels=[layer.name for layer in picture.layers], colors=[each.colour for each in picture.layers],
                       step='post', linewidth=0)


def _steps(picture: Picture, axes: Axes) -> None:
    for layer in picture.layers:
        axes.step(layer.x, layer.y, where='post', label=layer.name, color=layer.colour, linewidth=1)


def _lines(picture: Picture, axes: Axes) -> None:
    for layer in picture.layers:
        axes.plot(layer.x, layer.y, label=layer.name, color=layer.colour, linewidth=1)


def _points(picture: Picture, axes: Axes) -> None:
    points = sum(len(layer.x) for layer in picture.layers)
    many = points > _MOST_VECTORS
    size = 1.0 if many else 3.0 if points > _FEW else 8.0
    for layer in picture.layers:
        axes.plot([], [], linestyle='', marker='o', color=layer.colour, label=layer.name)   # for the legend
        axes.plot(layer.x, layer.y, linestyle='', marker='.', markersize=size, markeredgewidth=0, color=layer.colour,
                  rasterized=many)

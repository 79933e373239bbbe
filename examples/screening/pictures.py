"""Bars and curves as SVG files, which every browser shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

WIDTH, HEIGHT, MARGIN = 640, 320, 48
BLUE = '#2b6cb0'


def histogram(path: Path, values: Sequence[float], title: str, label: str, bins: int = 40) -> None:
    """Draw how often values occur."""
    low, high = min(values), max(values)
    step = (high - low) / bins or 1.0
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int((value - low) / step))] += 1
    width = (WIDTH - 2 * MARGIN) / bins
    bars = [f'<rect x="{MARGIN + index * width:.1f}" y="{HEIGHT - MARGIN - height:.1f}" width="{width - 1:.1f}" '
            f'height="{height:.1f}" fill="{BLUE}"/>'
            for index, height in enumerate(_heights(counts))]
    _write(path, title, label, (low, high), max(counts), bars)


def curve(path: Path, values: Sequence[float], title: str, label: str, end: float) -> None:
    """Draw values that are equally far apart, from 0 to `end`."""
    step = (WIDTH - 2 * MARGIN) / max(1, len(values) - 1)
    points = ' '.join(f'{MARGIN + index * step:.1f},{HEIGHT - MARGIN - height:.1f}'
                      for index, height in enumerate(_heights(values)))
    line = f'<polyline points="{points}" fill="none" stroke="{BLUE}" stroke-width="2"/>'
    _write(path, title, label, (0, end), max(values), [line])


def _heights(values: Sequence[float]) -> list[float]:
    most = max(values) or 1
    return [value / most * (HEIGHT - 2 * MARGIN) for value in values]


def _number(value: float) -> str:
    return f'{value:.0f}' if value >= 100 else f'{value:.3g}'


def _write(path: Path, title: str, label: str, ends: tuple[float, float], most: float, shapes: list[str]) -> None:
    base, right = HEIGHT - MARGIN, WIDTH - MARGIN
    texts = [(WIDTH / 2, MARGIN / 2, 'middle', title), (WIDTH / 2, base + 36, 'middle', label),
             (MARGIN, base + 18, 'middle', _number(ends[0])), (right, base + 18, 'middle', _number(ends[1])),
             (MARGIN - 6, MARGIN, 'end', _number(most)), (MARGIN - 6, base, 'end', '0')]
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
             'font-size="13">', '<rect width="100%" height="100%" fill="white"/>', *shapes,
             f'<path d="M{MARGIN} {MARGIN}V{base}H{right}" fill="none" stroke="black"/>',
             *(f'<text x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>' for x, y, anchor, text in texts), '</svg>']
    path.write_text('\n'.join(lines) + '\n')

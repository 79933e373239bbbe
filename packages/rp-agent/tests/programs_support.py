"""Programs that answer as launchers do."""

from __future__ import annotations

from pathlib import Path


def program(path: Path, script: str) -> Path:
    """A program that runs this shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\n{script}\n')
    path.chmod(0o755)
    return path


def says(text: str, code: int = 0) -> str:
    """A script that prints a text."""
    return f"cat <<'END'\n{text}\nEND\nexit {code}"

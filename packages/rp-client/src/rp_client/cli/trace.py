"""The command `rp trace`: that of rp-profiling, for sessions in any directory."""

from __future__ import annotations

import argparse
from importlib import import_module

from rp_client.cli import stores


def trace(arguments: list[str]) -> int:
    """Analyse and check the traces of a session, draw and export them."""
    code: int = import_module('rp_profiling.cli').trace(
        arguments, choose=lambda wanted: stores.choose(None, None, wanted).where)
    return code


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    found: argparse.ArgumentParser = import_module('rp_profiling.cli').make_parser()
    return found

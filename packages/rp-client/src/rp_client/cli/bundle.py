"""The command `rp bundle`, which packs the agent and its dependencies for machines without a package index."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from rp_client.cli import options as shared


def bundle(arguments: list[str]) -> int:
    """Pack the wheels of agent and RAPTOR for machines that cannot reach a package index."""
    from rp_client.bootstrap.prepare import bundle_directory, make_bundle

    options = make_parser().parse_args(arguments)
    target = options.output or bundle_directory() / f'{options.platform}.tar'
    wheels = make_bundle(target.absolute(), options.requirements, options.python or '', options.pip)
    if options.json:
        shared.print_json({'path': str(target), 'wheels': wheels, 'size': target.stat().st_size})
        return 0
    print('\n'.join(f'  {name}' for name in wheels))
    print(f'{target}: {len(wheels)} wheels, {target.stat().st_size / 1e6:.1f} MB')
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argparse.ArgumentParser(
        prog='rp bundle', description=bundle.__doc__, parents=[shared.as_json()],
        epilog="Pilots on a platform whose rp_version is 'local' install from the bundle, which is copied with them.")
    parser.add_argument('requirements', nargs='*', metavar='REQUIREMENT',
                        help='names, directories or wheels to pack, as for pip (default: rp-agent and rp-raptor)')
    parser.add_argument('--platform', default='default', metavar='LABEL', help='make the bundle for this platform only')
    parser.add_argument('--python', metavar='X.Y', type=_version,
                        help='version of Python on the machine (default: that of this interpreter)')
    parser.add_argument('--output', type=Path, metavar='FILE',
                        help='path of the bundle (default: in ~/.radical/pilot/bundles)')
    parser.add_argument('--pip', action='append', default=[], metavar='OPTION',
                        help='an option for pip, such as --pip=--platform=manylinux2014_aarch64')
    return parser


def _version(text: str) -> str:
    if not re.fullmatch(r'3\.[0-9]+', text):
        raise argparse.ArgumentTypeError(f'{text!r} is not of the form 3.<minor>')
    return text

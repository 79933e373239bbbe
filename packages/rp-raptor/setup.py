"""Builds the Cython extensions; all metadata stands in pyproject.toml.

The environment variable RP_BUILD chooses the kind: `release` (the default), `debug` with bounds checks and debugging
symbols, or `asan`, the same with AddressSanitizer and UndefinedBehaviorSanitizer, whose libraries have to be loaded
into Python first. Each kind is built in a directory of its own.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

HERE = Path(__file__).resolve().parent
KINDS = {
    'release': ['-O2'],
    'debug': ['-O0', '-g', '-UNDEBUG', '-fsanitize=undefined', '-fno-sanitize-recover=all'],
    'asan': ['-O1', '-g', '-UNDEBUG', '-fno-omit-frame-pointer', '-fsanitize=address,undefined',
             '-fno-sanitize-recover=all'],
}
KIND = os.environ.get('RP_BUILD') or 'release'
if KIND not in KINDS:
    raise SystemExit(f'RP_BUILD is {KIND!r}; it can be one of {", ".join(KINDS)}')
CHECKED = KIND != 'release'

DIRECTIVES = {
    'language_level': 3,
    'boundscheck': CHECKED,
    'wraparound': CHECKED,
    'initializedcheck': CHECKED,
    'cdivision': not CHECKED,
    'embedsignature': True,
    'autotestdict': False,
}


def extension(source: Path) -> Extension:
    """The extension whose module name is the place of its source below src/."""
    parts = source.relative_to('src').with_suffix('').parts
    headers = [str(path) for path in sorted(source.parent.glob('*.h'))]
    return Extension('.'.join(parts), [str(source)], depends=headers, include_dirs=[str(source.parent)],
                     extra_compile_args=['-std=c11', '-Wall', *KINDS[KIND]],
                     extra_link_args=[flag for flag in KINDS[KIND] if flag.startswith('-fsanitize')])


os.chdir(HERE)
sources = sorted(Path('src').rglob('*.pyx'))
setup(ext_modules=cythonize([extension(source) for source in sources], build_dir=f'build/{KIND}/cython',
                            include_path=['src'], compiler_directives=DIRECTIVES),
      options={'build': {'build_base': f'build/{KIND}'}})

"""Builds the Cython extensions; all metadata stands in pyproject.toml.

RP_BUILD=debug builds with bounds checks, assertions and debugging symbols, anything else builds a release.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

HERE = Path(__file__).resolve().parent
DEBUG = os.environ.get('RP_BUILD') == 'debug'

DIRECTIVES = {
    'language_level': 3,
    'boundscheck': DEBUG,
    'wraparound': DEBUG,
    'initializedcheck': DEBUG,
    'nonecheck': DEBUG,
    'cdivision': not DEBUG,
    'embedsignature': True,
    'autotestdict': False,
}
FLAGS = ['-std=c11', '-Wall', *(['-O0', '-g', '-UNDEBUG'] if DEBUG else ['-O2'])]


def extension(source: Path) -> Extension:
    """The extension whose module name is the place of its source below src/."""
    parts = source.relative_to('src').with_suffix('').parts
    headers = [str(path) for path in sorted(source.parent.glob('*.h'))]
    return Extension('.'.join(parts), [str(source)], depends=headers, include_dirs=[str(source.parent)],
                     extra_compile_args=FLAGS)


os.chdir(HERE)
sources = sorted(Path('src').rglob('*.pyx'))
setup(ext_modules=cythonize([extension(source) for source in sources], build_dir='build/cython',
                            compiler_directives=DIRECTIVES))

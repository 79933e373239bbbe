"""Builds the Cython extensions (`*.pyx`) and programs (`*.c`) below src/; all metadata stands in pyproject.toml.

The environment variable RP_BUILD chooses the kind: `release` (the default); `quick`, the same without optimisation,
which compiles in a quarter of the time; `debug` with bounds checks, debugging symbols and UndefinedBehaviorSanitizer;
or `asan`, that and AddressSanitizer, for a Python into which the sanitizers' libraries are loaded first. Each kind is
compiled in a directory of its own, from C code that the kinds with bounds checks share, and those without.

An sdist is built alone, so each distribution with extensions has a copy of this file; a test keeps them alike.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import LinkError

HERE = Path(__file__).resolve().parent
SANITIZED = ['-O0', '-g', '-UNDEBUG', '-fno-omit-frame-pointer', '-fno-sanitize-recover=all']
KINDS = {
    # the flags that Python was compiled with ask for debugging symbols, which take a third of the time
    'release': ['-O2', '-g0'],
    'quick': ['-O0', '-g0'],
    'debug': [*SANITIZED, '-fsanitize=undefined'],
    'asan': [*SANITIZED, '-fsanitize=address,undefined'],
}
KIND = os.environ.get('RP_BUILD') or 'release'
if KIND not in KINDS:
    raise SystemExit(f'RP_BUILD is {KIND!r}; it can be one of {", ".join(KINDS)}')
CHECKED = '-UNDEBUG' in KINDS[KIND]

DIRECTIVES = {
    'language_level': 3,
    'boundscheck': CHECKED,
    'wraparound': CHECKED,
    'initializedcheck': CHECKED,
    'cdivision': not CHECKED,
    'embedsignature': True,
    'autotestdict': False,
}


def extension(source: Path, kind: type[Extension] = Extension) -> Extension:
    """The extension, or other kind of thing, whose module name is the place of its source below src/."""
    parts = source.relative_to('src').with_suffix('').parts
    headers = [str(path) for path in sorted(source.parent.glob('*.h'))]
    return kind('.'.join(parts), [str(source)], depends=[*headers, 'setup.py'], include_dirs=[str(source.parent)],
                extra_compile_args=['-std=c11', '-Wall', *KINDS[KIND]],
                extra_link_args=[flag for flag in KINDS[KIND] if flag.startswith('-fsanitize')])


class Program(Extension):
    """A program, with the name of a module."""


class Build(build_ext):
    """Builds extensions and programs."""

    def finalize_options(self) -> None:
        """An editable installation would build all of them again each time, in a temporary directory."""
        super().finalize_options()
        if self.editable_mode:
            self.build_lib = f'build/{KIND}/lib'

    def copy_file(self, infile: str, outfile: str, *args: object, **options: object) -> tuple[str, bool]:
        """To the source tree, where others may run the file that it replaces."""
        _, copied = super().copy_file(infile, f'{outfile}.new', *args, **options)
        os.replace(f'{outfile}.new', outfile)
        return outfile, copied

    def get_ext_filename(self, fullname: str) -> str:
        """Its place below that of the packages."""
        if isinstance(self.ext_map.get(fullname), Program):
            return fullname.replace('.', os.sep)
        return str(super().get_ext_filename(fullname))

    def build_extension(self, ext: Extension) -> None:
        """A program that needs no libraries, where the compiler has static ones, starts in half the time."""
        if not isinstance(ext, Program):
            super().build_extension(ext)
            return
        objects = self.compiler.compile(ext.sources, output_dir=self.build_temp, depends=ext.depends,
                                        extra_postargs=ext.extra_compile_args)
        directory, name = os.path.split(self.get_ext_fullpath(ext.name))
        try:
            static = [] if CHECKED else ['-static']
            self.compiler.link_executable(objects, name, directory, extra_postargs=[*ext.extra_link_args, *static])
        except LinkError:
            self.compiler.link_executable(objects, name, directory, extra_postargs=ext.extra_link_args)


os.chdir(HERE)
sources = sorted(Path('src').rglob('*.pyx'))
modules = cythonize([extension(source) for source in sources], include_path=['src'],
                    build_dir=f'build/cython/{"checked" if CHECKED else "unchecked"}', compiler_directives=DIRECTIVES)
programs = [extension(source, Program) for source in sorted(Path('src').rglob('*.c'))]
setup(ext_modules=[*modules, *programs], cmdclass={'build_ext': Build},
      options={'build': {'build_base': f'build/{KIND}'}, 'build_ext': {'parallel': True}})

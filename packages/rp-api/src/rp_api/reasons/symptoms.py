"""Symptoms: lines of programs, libraries, shells and launchers by which the cause of a failure is recognised."""

from __future__ import annotations

import re
from typing import NamedTuple


class Symptom(NamedTuple):
    """What a line of an output means: the kind of the reason, and a sentence with the groups of the pattern."""

    kind: str
    pattern: re.Pattern[str]
    sentence: str


def _symptom(kind: str, pattern: str, sentence: str) -> Symptom:
    return Symptom(f'failed.{kind}', re.compile(pattern, re.MULTILINE), sentence)


SYMPTOMS: tuple[Symptom, ...] = (
    _symptom('gpu_memory', r'CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|HIP out of memory|hipErrorOutOfMemory|'
             r'cudaErrorMemoryAllocation|OutOfMemoryError: CUDA', 'the memory of the GPU is full'),
    _symptom('gpu', r'(no CUDA-capable device is detected|CUDA driver version is insufficient|CUDA_ERROR_NO_DEVICE|'
             r'No CUDA GPUs are available|hipErrorNoDevice|Found no NVIDIA driver)', 'there is no usable GPU: {0}'),
    _symptom('limit', r'CANCELLED AT \S+ DUE TO TIME LIMIT|job killed: walltime .* exceeded|TERM_RUNLIMIT',
             'the batch system has ended it at the time limit of the job'),
    _symptom('memory', r'(?i:oom[-_ ]kill|out of memory|exceeded (?:job |step )?memory limit|std::bad_alloc|'
             r'cannot allocate memory)|^MemoryError\b', 'there was not enough memory'),
    _symptom('disk', r'(No space left on device|Disk quota exceeded)', 'the disk is full: {0}'),
    _symptom('disk', r'(Read-only file system)', 'nothing can be written: {0}'),
    _symptom('module', r"(?:ModuleNotFoundError|ImportError): No module named '?([\w.]+)'?",
             'the Python module {0} is not installed'),
    _symptom('mpi', r'error while loading shared libraries: (lib(?:mpi|pmi|pmix|mpich)[\w.+-]*)',
             'the MPI library {0}, with which the program was built, is missing'),
    _symptom('library', r'error while loading shared libraries: ([^:\s]+)', 'the shared library {0} is missing'),
    _symptom('library', r'(?:^|\s)(\S+\.so[\w.]*): cannot open shared object file',
             'the shared library {0} is missing'),
    _symptom('library', r"version [`'](\S+)' not found \(required by ([^)]+)\)",
             'a library is too old: {1} requires {0}'),
    _symptom('library', r'undefined symbol: (\S+)', 'the libraries do not suit each other: {0} is missing'),
    _symptom('mpi', r'((?:PMI2?|PMIX|PMIx)[_ ]\w*.*(?:fail|error|not found|unreachable|mismatch).*|'
             r'^.*(?:was not built with .*(?:PMI|SLURM).*support|MPI_Init\w* fail|ORTE was unable to reliably start|'
             r'unable to find.*PMI).*|OPAL ERROR.*)',
             'MPI could not be initialised: {0}'),
    _symptom('architecture', r'Exec format error|cannot execute binary file|ELF\S*: (?:command )?not found',
             'the program is not for this processor, or a script without a first line `#!`'),
    _symptom('architecture', r'Illegal instruction', 'the program uses instructions that this processor does not have'),
    _symptom('license', r'(?i:(FLEXnet.*|licen[sc]e (?:server|checkout|.*not available|.*expired).*|'
             r'no licen[sc]es? .*available.*))', 'there was no license: {0}'),
    _symptom('files', r'(Too many open files|Resource temporarily unavailable.*fork|fork: .*unavailable)',
             'a limit of the system is reached: {0}'),
    _symptom('address', r'(Address already in use)', 'the port is taken: {0}'),
    _symptom('network', r'(Connection (?:refused|timed out|reset by peer)|Name or service not known|'
             r'Could not resolve host\S*(?: \S+)?|Temporary failure in name resolution|No route to host|'
             r'Network is unreachable)', 'a host cannot be reached: {0}'),
    _symptom('program', r'^(?:.*: )?(?:line \d+: |\d+: )?([^\s:]+): (?:command )?not found$',
             'the program {0} does not exist'),
    _symptom('program', r'executable not found: (\S+)', 'the program {0} does not exist'),
    _symptom('program', r'^env: \W?([^\':\u2019]+)[\'\u2019]?: No such file or dir',
             'the program {0} does not exist'),
    _symptom('program', r'cannot execute: .*\((.+)\): the interpreter', 'the interpreter of {0} does not exist'),
    _symptom('permission', r'not executable: (\S+)', 'it may not execute {0}'),
    _symptom('program', r'bad interpreter: (.+)$', 'the interpreter of the script does not exist: {0}'),
    _symptom('syntax', r'((?:SyntaxError|IndentationError): .*|^.*[Ss]yntax error.*)', 'a script is wrong: {0}'),
    _symptom('permission', r'^(?:.*?[:,] )?([^:\n]*): Permission denied', 'it may not use {0}'),
    _symptom('permission', r"PermissionError: .*?: '([^']+)'", 'it may not use {0}'),
    _symptom('permission', r'(Permission denied|Operation not permitted)', 'a permission is missing: {0}'),
    _symptom('file', r"FileNotFoundError: .*: '([^']+)'", 'the file {0} does not exist'),
    _symptom('file', r"cannot (?:access|open|stat|create|read) \W?([^':\u2019\n]+)['\u2019]?:? (?:for reading: )?"
             r'No such file or directory', 'the file {0} does not exist'),
    _symptom('file', r'^(?:[^:\n]+: )*?([^\s:]+): No such file or directory', 'the file {0} does not exist'),
    _symptom('usage', r'((?:unrecognized|unknown|invalid|illegal) (?:arguments?|options?)\b.*|^usage: .*)',
             'its arguments are wrong: {0}'),
    _symptom('crash', r'(Segmentation fault|Assertion .* failed.*|double free or corruption.*|stack smashing detected)',
             'the program has a defect: {0}'),
    _symptom('exception', r'^Traceback \(most recent call last\):\n(?:.*\n)*?((?:\w+\.)*\w*(?:Error|Exception|'
             r'Interrupt|Exit|Warning|Iteration)\b.*)', 'a Python exception has ended it: {0}'),
)
"""The symptoms, the most telling first."""

LONGEST = 200
"""Characters of a line that a sentence quotes."""


def recognised(text: str) -> tuple[str, str] | None:
    """Return the kind and the sentence of the first symptom that a text has; None if it has none."""
    for kind, pattern, sentence in SYMPTOMS:
        found = pattern.search(text)
        if found:
            return kind, sentence.format(*(str(each).strip()[:LONGEST] for each in found.groups()))
    return None

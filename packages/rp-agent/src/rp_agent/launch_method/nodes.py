"""Layouts of ranks on nodes, in the forms that launchers take: blocks, host lists, host files, core ranges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, groupby, pairwise
from typing import NamedTuple

from rp_agent.launch_method.base import Job, Rank

MAX_HOSTS_IN_COMMAND = 42
"""Maximum number of host names in a command line; longer lists go to a file."""

MAX_HOST_LIST_CHARS = 2**16
"""Maximum number of characters of a list of hosts in a command line; Linux allows twice as many."""


class NodeBlock(NamedTuple):
    """Consecutive ranks on one node."""

    node: str
    position: int
    """Position of the node in the pilot."""
    ranks: int
    """Number of ranks."""


def blocks(ranks: Sequence[Rank]) -> list[NodeBlock]:
    """Group the ranks, in their order, into blocks on one node each; a node may have several blocks."""
    found = []
    last, start = ranks[0], 0
    for number, rank in enumerate(ranks):
        if rank.index != last.index:
            found.append(NodeBlock(last.node, last.index, number - start))
            last, start = rank, number
    found.append(NodeBlock(last.node, last.index, len(ranks) - start))
    return found


def in_order(runs: Sequence[NodeBlock]) -> bool:
    """Return whether the nodes are in the order of the pilot, with one block each."""
    return all(before.position < after.position for before, after in pairwise(runs))


def parts(runs: Sequence[NodeBlock]) -> list[list[NodeBlock]]:
    """Divide blocks into as few parts as possible, each with the same number of ranks on all of its nodes.

    Launchers that fill nodes in order take one number of ranks per node for each part. If there is only one part, its
    last node may have fewer ranks.
    """
    first = runs[0].ranks
    if in_order(runs) and all(run.ranks == first for run in runs[:-1]) and runs[-1].ranks <= first:
        return [list(runs)]
    found: list[list[NodeBlock]] = []
    for _, alike in groupby(runs, key=lambda run: run.ranks):
        found.append([])
        for run in alike:
            if any(run.position == other.position for other in found[-1]):
                found.append([])
            found[-1].append(run)
    return found


def joined(options: Sequence[Sequence[str]], executable: Sequence[str]) -> list[str]:
    """Join the options of each part, followed by the executable, with colons between the parts."""
    argv = [*options[0], *executable]
    for more in options[1:]:
        argv += [':', *more, *executable]
    return argv


def hosts(job: Job) -> tuple[str, str]:
    """Return the path of a file with a host for each rank, and its text."""
    return f'{job.sandbox}/{job.uid}.hosts', ''.join([f'{rank.node}\n' for rank in job.ranks])


def host_options(job: Job, files: dict[str, str]) -> tuple[str, str]:
    """Return the options of Open MPI and PRRTE that name a host for each rank; add a host file to `files` if needed."""
    names = ','.join([rank.node for rank in job.ranks])
    if len(names) <= MAX_HOST_LIST_CHARS:   # preferred: Open MPI 4 does not accept `localhost` in a file
        return '--host', names
    path, files[f'{job.uid}.hosts'] = hosts(job)
    return '--hostfile', path


def ranges(numbers: Sequence[int]) -> str:
    """Format ascending numbers as ranges, such as `0-3,8`."""
    if len(numbers) > 1 and numbers[-1] - numbers[0] == len(numbers) - 1:   # the usual case
        return f'{numbers[0]}-{numbers[-1]}'
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] + 1 == number:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ','.join(str(first) if first == last else f'{first}-{last}' for first, last in found)


def cores_of_each(ranks: Sequence[Rank], runs: Sequence[NodeBlock]) -> list[tuple[int, ...]]:
    """Return the cores of each rank of a node; empty if they are unknown or differ between nodes."""
    most = runs[0].ranks
    first = [rank.cores for rank in ranks[:most]]
    start = 0
    for run in runs:
        if [rank.cores for rank in ranks[start:start + run.ranks]] != first[:run.ranks]:
            return []
        start += run.ranks
    return first if all(first) else []


def all_cores(each: Iterable[tuple[int, ...]]) -> list[int]:
    """Return the cores of several ranks, sorted."""
    return sorted(set(chain.from_iterable(each)))

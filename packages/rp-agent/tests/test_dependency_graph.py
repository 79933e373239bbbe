"""The graph of dependencies, against a model: random graphs, conditions, orders of ends and cancellations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rp_agent.dependencies.ends import LINKS, MAX_ERROR_CHARS, End, ending, not_run
from rp_agent.dependencies.graph import Graph, Waiting
from rp_api import states
from rp_api.description.after import CONDITIONS, DONE, ENDED, FAILED, Value

Resolved = tuple[list[Waiting], list[tuple[Waiting, str]]]
FINAL = (states.DONE, states.FAILED, states.CANCELED)


def added(graph: Graph, *tasks: tuple[str, Value], **ends: str) -> Resolved:
    """Add tasks, each of which is described by its own uid; `ends` have ended."""
    return graph.add([(uid, after, uid.encode()) for uid, after in tasks],
                     lambda uid: End(ends[uid], f'is {ends[uid]}') if uid in ends else None)


def settled(graph: Graph, **ends: str) -> Resolved:
    return graph.settle((uid, End(state, f'is {state}')) for uid, state in ends.items())


def uids(resolved: Resolved) -> tuple[list[str], list[str]]:
    return [waiting.uid for waiting in resolved[0]], [waiting.uid for waiting, _ in resolved[1]]


@st.composite
def graphs(draw: st.DrawFn) -> list[dict[str, str]]:
    """For each task, the tasks before it that it is after, by number, with their conditions."""
    size = draw(st.integers(1, 12))
    return [{str(other): draw(st.sampled_from(CONDITIONS)) for other in draw(st.sets(st.integers(0, task - 1)))}
            if task else {} for task in range(size)]


@given(graphs(), st.data())
def test_each_task_is_released_when_its_conditions_are_met_and_doomed_when_one_cannot_be(
        tasks: list[dict[str, str]], data: st.DataObject) -> None:
    """Tasks come in any order and in any bulks, and tasks that have come may end between them."""
    graph = Graph()
    ended: dict[str, str] = {}
    running: set[str] = set()
    waiting: set[str] = set()
    rest = data.draw(st.permutations([str(number) for number in range(len(tasks))]))
    came: set[str] = set()

    def after(uid: str) -> dict[str, str]:
        return tasks[int(uid)]

    def judge(resolved: Resolved) -> None:
        """Compare with the model: what can be decided is decided, and nothing else."""
        expected_released, expected_doomed = set(), set()
        while True:
            new = {uid for uid in waiting for other, condition in after(uid).items()
                   if other in ended and not End(ended[other]).meets(condition)}
            if not new:
                break
            waiting.difference_update(new)
            expected_doomed |= new
            ended.update(dict.fromkeys(new, states.CANCELED))
        for uid in list(waiting):
            if all(other in ended for other in after(uid)):
                waiting.discard(uid)
                expected_released.add(uid)
        released, doomed = uids(resolved)
        assert (sorted(released), sorted(doomed)) == (sorted(expected_released), sorted(expected_doomed))
        assert all(name.description == name.uid.encode() for name in resolved[0])
        running.update(released)

    def chosen() -> bool:
        return data.draw(st.booleans())

    while rest or running:
        if rest and (not running or chosen()):
            count = data.draw(st.integers(1, len(rest)))
            bulk, rest = rest[:count], rest[count:]
            came.update(bulk)
            running.update(uid for uid in bulk if not after(uid))
            held = [uid for uid in bulk if after(uid)]
            waiting.update(held)
            judge(graph.add([(uid, after(uid), uid.encode()) for uid in held],
                            lambda uid: End(ended[uid], f'is {ended[uid]}') if uid in ended else None))
        elif waiting and chosen():
            uid = data.draw(st.sampled_from(sorted(waiting)))
            assert [taken.uid for taken in graph.take([uid, 'other'])] == [uid]
            waiting.discard(uid)
            ended[uid] = states.CANCELED
            judge(settled(graph, **{uid: states.CANCELED}))
        elif running:
            uid = data.draw(st.sampled_from(sorted(running)))
            running.discard(uid)
            ended[uid] = data.draw(st.sampled_from(FINAL))
            judge(settled(graph, **{uid: ended[uid]}))
        assert len(graph) == len(waiting)
        assert all(uid in graph for uid in waiting)
    assert (len(graph), waiting) == (0, set())
    assert all(graph.dependents(str(number)) == [] for number in range(len(tasks)))


def test_nothing_is_kept_of_tasks_that_have_ended() -> None:
    graph = Graph()
    added(graph, ('b', ['a']), ('c', ['a', 'b']))
    graph.take(['b', 'c'])
    settled(graph, a=states.DONE, b=states.DONE)
    assert (len(graph), [graph.dependents(uid) for uid in 'abc']) == (0, [[]] * 3)


def test_ends_count_once_and_those_of_other_tasks_not() -> None:
    graph = Graph()
    added(graph, ('c', ['a', 'b']))
    assert uids(settled(graph, a=states.DONE, x=states.FAILED)) == ([], [])
    assert uids(settled(graph, a=states.FAILED)) == ([], [])
    assert uids(settled(graph, b=states.DONE)) == (['c'], [])


def test_a_long_chain_falls_without_recursion_and_its_reasons_are_short() -> None:
    graph = Graph()
    added(graph, *((f'task.{number:06d}', [f'task.{number - 1:06d}']) for number in range(1, 5000)))
    _, doomed = graph.settle([('task.000000', End(states.FAILED, 'is FAILED: exit code 1'))])
    assert [waiting.uid for waiting, _ in doomed] == [f'task.{number:06d}' for number in range(1, 5000)]
    assert doomed[1][1] == ('task.000002 was not run: it is after task.000001, which was not run: it is after '
                            'task.000000, which is FAILED: exit code 1')
    last = doomed[-1][1]
    assert last.startswith('task.004999 was not run: it is after task.004998, which was not run: it is after task.0049')
    assert last.endswith(', which was not run: it is after task.000000, which is FAILED: exit code 1')
    assert last.count('...') == 1
    assert max(len(reason) for _, reason in doomed) < 100 * 2 * LINKS


def test_what_a_condition_accepts() -> None:
    assert {(state, condition) for state in FINAL for condition in CONDITIONS if End(state).meets(condition)} == {
        (states.DONE, DONE), (states.DONE, ENDED), (states.FAILED, ENDED), (states.CANCELED, ENDED),
        (states.FAILED, FAILED), (states.CANCELED, FAILED)}


def test_endings_name_the_exit_code_or_the_error() -> None:
    assert ending('t', states.FAILED, {'exit_code': 3, 'exception': "RuntimeError('task failed')"}) == (
        'is FAILED: exit code 3')
    assert ending('t', states.CANCELED, {'exception': 'cancelled by the user\nand more'}) == (
        'is CANCELED: cancelled by the user')
    assert ending('t', states.FAILED, {}) == 'is FAILED'
    assert len(ending('t', states.FAILED, {'exception': 'x' * 10000})) < MAX_ERROR_CHARS + 30
    assert ending('t', states.CANCELED, {'exception': not_run('t', 'a', 'is FAILED')}) == (
        'was not run: it is after a, which is FAILED')

"""Which executor is made for which name."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest
from executor_support import a_context

from rp_agent.executor import registry
from rp_agent.executor.popen.component import Executor
from rp_agent.executor.shell import ShellExecutor
from rp_agent.executor.simulated import SimulatedExecutor
from rp_api.errors import PlatformError
from rp_api.loop.event_loop import Loop
from rp_profiling.write.tracer import Tracer


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


@pytest.mark.parametrize(('name', 'kind'), [('POPEN', Executor), ('SHELL', ShellExecutor),
                                            ('SIMULATED', SimulatedExecutor), ('NOOP', SimulatedExecutor)])
def test_names(name: str, kind: type, loop: Loop, tmp_path: Path) -> None:
    made = registry.spawner(name)('x', Tracer(None, 'x'), loop, a_context(tmp_path), {})
    assert type(made) is kind
    made.check()
    made.close()


def test_unknown_name() -> None:
    with pytest.raises(PlatformError) as caught:
        registry.spawner('ABDS')
    assert str(caught.value) == ("agent_spawner 'ABDS' is unknown, installed are DRAGON, FLUX, NOOP, POPEN, SHELL, "
                                 'SIMULATED')


@pytest.mark.parametrize('name', ['POPEN', 'SHELL', 'SIMULATED', 'NOOP', 'FLUX', 'DRAGON'])
def test_ours_need_no_search(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('importlib.metadata.entry_points', lambda: pytest.fail('it looked for entry points'))
    assert callable(registry.spawner(name))


def test_others_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint('OTHER', 'rp_agent.executor.simulated:noop', registry.GROUP)
    monkeypatch.setattr('importlib.metadata.entry_points', lambda: EntryPoints([point]))
    assert registry.spawner('OTHER') is registry.spawner('NOOP')


@pytest.mark.parametrize(('name', 'runs_at'), [('SIMULATED', 3.5), ('NOOP', 3.0)])
def test_the_launch_model_is_for_simulations(name: str, runs_at: float, loop: Loop) -> None:
    options: dict[str, Any] = {'launch_model': {'seconds': 0.5}}
    made = registry.spawner(name)('x', Tracer(None, 'x'), loop, a_context(), options)
    assert isinstance(made, SimulatedExecutor)
    assert made._model.runs_at(3.0) == runs_at
    made.close()


def test_a_launch_model_that_cannot_be_understood(loop: Loop) -> None:
    with pytest.raises(PlatformError, match='launch_model of distribution'):
        registry.spawner('SIMULATED')('x', Tracer(None, 'x'), loop, a_context(), {'launch_model': {'speed': 1}})

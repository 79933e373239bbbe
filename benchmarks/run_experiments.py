"""Run the experiments of the paper again, and write benchmarks/experiments: a page with tables, and pictures.

    python benchmarks/run_experiments.py [--output DIR] [--work DIR] [PART ...]

The parts are `simulated` (experiments 1 to 4), `functions` (experiment 5) and `here` (real runs on this machine). What
they find is kept in `results.json` of the output, from which the page is made: parts that are not named stay as they
are there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory
from typing import Any

from common import Strangers, fresh, progress
from experiments import drawings, functions, here
from experiments.paper import Paper, read_paper
from experiments.runs import all_runs
from experiments.simulated import Figures, figures, simulate_runs
from experiments.table import Outcome, markdown, number, off_by, table, within

PAGE = Path(__file__).with_name('experiments') / 'page.md'
DRAWN = ('3', '4')
"""Experiments whose runs are drawn over time."""

Results = dict[str, Any]


def simulated(work: Path, output: Path) -> Results:
    """Figures of all runs of experiments 1 to 4, with the model of the paper's system and with our scheduler."""
    found: Results = {}
    for run in all_runs():
        found[run.name] = {}
        for which, model in (('reproduced', run.model), ('ours', run.ours())):
            progress(f'{run.title}, {which}')
            session = work / f'{run.name}.{which}'
            found[run.name][which] = asdict(simulate_runs(run, model, session))
            if which == 'reproduced' and run.name.partition('.')[0] in DRAWN:
                drawings.over_time(session / '1', run.title, output / f'run-{run.name}.png')
            shutil.rmtree(session)
    return found


def calls(work: Path, output: Path) -> Results:
    """Figures of experiment 5."""
    progress('function calls')
    result = functions.experiment_5(work / 'functions')
    drawings.calls(result, output / 'run-5.png')
    shutil.rmtree(work / 'functions')
    length, busy = functions.steady(result)
    start, tail = functions.edges(result)
    return {'start': start, 'tail': tail,
            'ttx': result.result.walltime, 'ru': 100 * result.utilisation, 'ru_steady': busy, 'steady': length,
            'concurrency': max(result.running), 'rate': result.rate, 'rate_peak': result.peak_rate}


def real(work: Path, output: Path) -> Results:
    """Figures of real runs on this machine."""
    script, strangers = here.__file__, Strangers()
    system = f'Linux {platform.release().partition("-")[0]}, Python {platform.python_version()}'
    found: Results = {'machine': f'{os.cpu_count()} virtual cores, {system}', 'runs': {}}
    for title, (cores, count) in {**here.WEAK, **here.STRONG, **here.FAKED}.items():
        progress(title)
        session = Path(fresh(script, str(work), title)['session'])
        found['runs'][title] = {'cores': cores, 'tasks': count, **asdict(figures(session))}
    found['calls'] = fresh(script, str(work), 'calls')
    found['others'] = strangers.share()
    return found


PARTS = {'simulated': simulated, 'functions': calls, 'here': real}


def page(results: Results, paper: Paper) -> str:
    """The page about all results."""
    outcomes = outcomes_of(results['simulated'])
    worst = max(abs(outcome.reproduced.ttx / row.value - 1) for outcome in outcomes
                 if (row := paper.find(outcome.run.name, 'ttx')))
    found = results['here']
    worst_ru, worst_ovh = (max(abs(getattr(outcome.reproduced, figure) - row.value) for outcome in outcomes
                               if (row := paper.find(outcome.run.name, figure))) for figure in ('ru_running', 'ovh'))
    return Template(PAGE.read_text()).substitute(
        table=table(outcomes, paper), worst_ttx=f'{100 * worst:.1f} %',
        worst_ru=f'{worst_ru:.1f}', worst_ovh=f'{worst_ovh:.0f}',
        within='{} of {}'.format(*within(outcomes, paper)),
        functions=functions_table(results['functions'], paper), **functions_text(results['functions']),
        machine=found['machine'],
        others=f'{found["others"]:.0f}',
        here=here_table(found['runs']), sleep=here.SLEEP, pause=f'{1000 * here.PAUSE:g}', ranks=here.REAL_CORES,
        start=f'{found["calls"]["start"]:.1f}', rate=f'{found["calls"]["rate"]:.0f}',
        calls_ru=f'{found["calls"]["ru"]:.0f}')


def outcomes_of(results: Results) -> list[Outcome]:
    """The runs with what was found of them."""
    return [Outcome(run, Figures(**results[run.name]['reproduced']), Figures(**results[run.name]['ours']))
            for run in all_runs() if run.name in results]


def functions_table(found: Results, paper: Paper) -> str:
    """Experiment 5: paper and reproduced."""
    names = {'ttx': ('runtime', 's'), 'ru': ('RU', '%'), 'ru_steady': ('RU in the steady state', '%'),
             'steady': ('steady state', 's'), 'concurrency': ('calls at a time, at most', ''),
             'rate': ('calls per second, mean', ''), 'rate_peak': ('calls per second, peak', '')}
    rows = []
    for figure, (name, unit) in names.items():
        reported = paper.find('5', figure)
        assert reported is not None, figure
        rows.append((name, f'{number(reported.value)} {unit}', f'{number(found[figure])} {unit}',
                     off_by(reported, found[figure], unit)))
    return markdown(('figure', 'paper', 'reproduced', 'off by'), rows)


def functions_text(found: Results) -> dict[str, str]:
    """What the page says of experiment 5 beside the table."""
    each, limit = found['rate'] / functions.MASTERS, functions.OURS.call_rate
    return {'start_calls': number(found['start']), 'tail_calls': number(found['tail']), 'each': number(each),
            'share': f'{100 * each / limit:.1f}', 'shortest': f'{functions.WORKERS * functions.RANKS / limit:.2f}'}


def here_table(found: Results) -> str:
    """Real runs: TTX, RU and OVH."""
    return markdown(('run', 'cores', 'tasks', 'TTX', 'RU', 'OVH'), [
        (title, str(each['cores']), str(each['tasks']), f'{each["ttx"]:.1f} s', f'{each["ru"]:.0f} %',
         f'{each["ovh"]:.1f} s') for title, each in found.items()])


def main() -> int:
    """Run the parts that are asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('parts', nargs='*', metavar='PART', help=f'{", ".join(PARTS)} (default: all)')
    parser.add_argument('--output', type=Path, default=PAGE.parent)
    parser.add_argument('--work', default='/tmp', help='for sessions: half a gigabyte (default: /tmp)')
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f'there is no part {", ".join(sorted(unknown))}; there are {", ".join(PARTS)}')
    options.output.mkdir(parents=True, exist_ok=True)
    kept = options.output / 'results.json'
    results: Results = json.loads(kept.read_text()) if kept.exists() else {}
    for part in options.parts or PARTS:
        with TemporaryDirectory(prefix='rp-experiments.', dir=options.work) as work:
            results[part] = PARTS[part](Path(work), options.output)
        kept.write_text(json.dumps(results, indent=1) + '\n')
    if missing := set(PARTS) - set(results):
        print(f'no page yet: {", ".join(sorted(missing))} did not run', file=sys.stderr)
        return 1
    paper, outcomes = read_paper(), outcomes_of(results['simulated'])
    for experiment in ('1', '2'):
        drawings.ttx_of(experiment, outcomes, paper, options.output / f'ttx-{experiment}.png')
    drawings.shares(outcomes, options.output / 'utilisation.png')
    (options.output / 'README.md').write_text(page(results, paper))
    print(f'{options.output / "README.md"} is written')
    return 0


if __name__ == '__main__':
    sys.exit(main())

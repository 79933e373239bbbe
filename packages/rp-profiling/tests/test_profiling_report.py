"""The report and the command `rp trace`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from traced_session import SESSION, events_of, uid_of, write_session

from rp_profiling.cli import trace

BROWSER = next(filter(None, map(shutil.which, ('chromium', 'chromium-browser', 'google-chrome'))), None)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_session(tmp_path, events_of(8))


def test_a_report_needs_no_network(session: Path) -> None:
    assert trace([SESSION, 'report']) == 0
    text = (session.parent / f'{SESSION}.html').read_text()
    assert 'no violations: all orders, states and accounts are correct' in text
    for word in ('Core utilisation', 'Task lifelines', 'TTX', 'OVH', 'exec cmd'):
        assert word in text
    assert not re.search(r'(src|href)=|@import|url\(|https?://', text)


def test_what_is_recorded_cannot_become_code(session: Path) -> None:
    evil = '</script><script>alert(1)</script>'
    with (session / 'tmgr.0000.prof').open('a') as file:
        file.write(f'1700000009.0,advance,tmgr.0000,MainThread,{evil},TMGR_SCHEDULING,\n')
    assert trace([SESSION, 'report', '-o', 'r.html']) == 0
    text = Path('r.html').read_text()
    assert evil not in text
    assert 'alert(1)&lt;/script&gt;' in text   # among the violations


@pytest.mark.skipif('CI' not in os.environ and BROWSER is None, reason='needs Chromium')
def test_a_browser_draws_the_report(session: Path, tmp_path: Path) -> None:
    assert trace([SESSION, 'report', '-o', 'r.html']) == 0
    # a page that loads the report, zooms with the wheel, and says what it has seen
    page = Path('r.html').read_text().replace('</body>', """<script>
      addEventListener('error', event => document.body.dataset.error = event.message);
      // a busy machine may be late with drawing, and whole is what it has drawn first
      const steps = setInterval(() => {
        const seen = document.body.dataset;
        if (!seen.view) return;
        seen.whole ??= seen.view;
        const canvas = document.querySelector('canvas');
        const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        seen.colours ??= new Set(Array.from(new Uint32Array(pixels.buffer))).size;
        if (seen.view !== seen.whole) clearInterval(steps);
        else canvas.dispatchEvent(new WheelEvent('wheel', {deltaY: -900, clientX: 400, clientY: 300}));
      }, 100);</script></body>""")
    Path('r.html').write_text(page)
    done = subprocess.run([str(BROWSER), '--headless', '--no-sandbox', '--disable-gpu',
                           f'--user-data-dir={tmp_path}/profile', '--virtual-time-budget=20000', '--dump-dom', f'file://{tmp_path}/r.html'],
                          capture_output=True, text=True, timeout=50)
    body = re.search(r'<body([^>]*)>', done.stdout)
    assert body is not None, done.stderr
    seen = dict(re.findall(r'data-(\w+)="([^"]*)"', body[1]))
    assert 'error' not in seen
    assert int(seen['colours']) > 5
    whole, zoomed = ([float(each) for each in seen[name].split()] for name in ('whole', 'view'))
    assert whole[0] <= zoomed[0] < zoomed[1] <= whole[1]
    assert zoomed[1] - zoomed[0] < 0.5 * (whole[1] - whole[0])


def test_figures_are_printed(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trace([SESSION, 'stats']) == 0
    out = capsys.readouterr().out
    assert re.search(r'^tasks +8 \(8 DONE\)$', out, re.MULTILINE)
    assert re.search(r'^TTX +0.182 s', out, re.MULTILINE)
    assert re.search(r'^  exec cmd +2.03 % +0.400 s$', out, re.MULTILINE)
    assert re.search(r'^  execution +8 +0.050000', out, re.MULTILINE)


def test_figures_for_programs(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trace([SESSION, 'stats', '--json']) == 0
    told = json.loads(capsys.readouterr().out)
    assert told['figures']['tasks'] == '8 (8 DONE)'
    assert told['use']['core']['exec cmd']['seconds'] == pytest.approx(0.4)
    assert next(stage for stage in told['stages'] if stage['stage'] == 'execution')['mean'] == pytest.approx(0.05)
    assert trace([SESSION, 'check', '--json']) == 0
    assert json.loads(capsys.readouterr().out)['violations'] == {}
    assert trace([SESSION, 'export', '--json']) == 0
    assert json.loads(capsys.readouterr().out) == {'files': [f'{SESSION}.json']}


def test_a_sound_session_passes_the_check(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trace([str(session), 'check']) == 0
    assert capsys.readouterr().out.endswith('profiles: 0 violations\n')


def test_a_check_that_finds_something_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = write_session(tmp_path, [event for event in events_of(8) if event.state != 'DONE'
                                       or event.uid != uid_of(2)])
    assert trace([str(session), 'check', '--json']) == 1
    told = json.loads(capsys.readouterr().out)
    assert (sum(told['violations'].values()), told['listed'][0]['uid']) == (1, 'task.000002')
    assert trace([str(session), 'check']) == 1
    out = capsys.readouterr().out
    assert 'task.000002: has no final state' in out
    assert out.endswith('profiles: 1 violations\n')


def test_pictures_and_exports_are_written(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trace([SESSION, 'plot', '--format', 'svg']) == 0
    assert trace([SESSION, 'export']) == 0
    assert trace([SESSION, 'export', '--form', 'csv', '-o', 'all.csv']) == 0
    files = capsys.readouterr().out.split()
    assert len(files) == 7
    assert all(Path(file).stat().st_size > 1000 for file in files)
    assert files[-2:] == [f'{SESSION}.json', 'all.csv']


def test_a_session_is_found_in_the_base_directory(session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / 'other').mkdir()
    monkeypatch.chdir(tmp_path / 'other')
    with pytest.raises(NotADirectoryError, match=f"no session '{SESSION}'"):
        trace([SESSION, 'check'])
    monkeypatch.setenv('RADICAL_PILOT_BASE', str(tmp_path))
    assert trace([SESSION, 'check']) == 0
    assert 'violations' in capsys.readouterr().out


def test_profiles_of_pilots_that_were_not_fetched_are_missed(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(session / 'pilot.0000')
    assert trace([SESSION, 'stats']) == 0
    assert 'there are no profiles of pilots: fetch them' in capsys.readouterr().err


def test_what_is_missing_is_named(session: Path, monkeypatch: pytest.MonkeyPatch,
                                  capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object) -> None:
        raise ModuleNotFoundError('no', name='matplotlib.figure')
    monkeypatch.setattr('rp_profiling.draw.plot.save', fail)
    assert trace([SESSION, 'plot']) == 1
    assert "pip install 'rp-profiling[analysis]'" in capsys.readouterr().err

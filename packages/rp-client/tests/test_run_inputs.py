"""Inputs and placeholders of `rp run`, as users of GNU parallel know them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from rp_client.cli.run import run
from rp_client.cli.runs.joblog import Joblog, default_path
from rp_client.cli.runs.run_inputs import Job, UsageError, jobs, rows, split, varying


def lines(line: str, *, shell: bool = False, files: tuple[str, ...] = ()) -> list[list[str]]:
    command, sources = split(line.split(' '))
    return [job.words for job in jobs(command, rows(sources, files), shell=shell)]


@pytest.mark.parametrize(('line', 'expected'), [
    ('echo ::: a b', ['echo a', 'echo b']),
    ('echo ::: a b ::: 1 2', ['echo a 1', 'echo a 2', 'echo b 1', 'echo b 2']),
    ('echo ::: a b :::+ 1 2', ['echo a 1', 'echo b 2']),
    ('echo ::: a b c :::+ 1 2 ::: x', ['echo a 1 x', 'echo b 2 x']),
    ('sim -t {1} -s{2} {1} ::: a ::: 1 2', ['sim -t a -s1 a', 'sim -t a -s2 a']),
    ('echo {#} ::: x y', ['echo 1', 'echo 2']),
    ('echo {#}:{} ::: x y', ['echo 1:x', 'echo 2:y']),
    ('f {} {/} {//} {.} {/.} ::: d/a.tar.gz', ['f d/a.tar.gz a.tar.gz d d/a.tar a.tar']),
    ('f {2/} {2//} {1.} {2/.} ::: b.c ::: x', ['f x . b x']),
    ('awk {print} $HOME {a} ::: 1', ['awk {print} $HOME {a} 1']),
    ('{} run ::: ./a ./b', ['./a run', './b run']),
])
def test_inputs_replace_placeholders(line: str, expected: list[str]) -> None:
    assert lines(line) == [words.split(' ') for words in expected]


def test_several_inputs_in_one_word() -> None:
    assert lines('echo x{} ::: a ::: b') == [['echo', 'xa b']]


def test_inputs_are_quoted_in_the_line_of_a_shell() -> None:
    command, sources = split(['cat {} | wc > {/.}', ':::', 'a b.c'])
    assert [job.words for job in jobs(command, rows(sources, ()), shell=True)] == [
        ['/bin/sh', '-c', "cat 'a b.c' | wc > 'a b'"]]
    command, sources = split(['echo', '-n', ':::', '$x'])
    assert [job.words[2] for job in jobs(command, rows(sources, ()), shell=True)] == ["echo -n '$x'"]


def test_files_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / 'one').write_text('a b\nc\n')
    (tmp_path / 'two').write_text('1\n2\n')
    one, two = str(tmp_path / 'one'), str(tmp_path / 'two')
    assert lines(f'f :::: {one} {two}') == [['f', 'a b', '1'], ['f', 'a b', '2'], ['f', 'c', '1'], ['f', 'c', '2']]
    assert lines(f'f :::: {one} ::::+ {two}') == [['f', 'a b', '1'], ['f', 'c', '2']]
    assert lines('f ::: x', files=(one,)) == [['f', 'a b', 'x'], ['f', 'c', 'x']]
    monkeypatch.setattr('sys.stdin', io.StringIO('p\nq r\n'))
    assert lines('f {}') == [['f', 'p'], ['f', 'q r']]
    monkeypatch.setattr('sys.stdin', io.StringIO('s\n'))
    assert lines('f', files=('-',)) == [['f', 's']]
    monkeypatch.setattr('sys.stdin', None)
    assert lines('f', files=('-',)) == []


def test_lines_end_with_a_line_feed(tmp_path: Path) -> None:
    path = tmp_path / 'names'
    for content, expected in ((b'', []), (b'\n', ['']), (b'a\n\nb', ['a', '', 'b']), (b'a\r\nb\r\n', ['a', 'b']),
                              (b'a\x0cb\n', ['a\x0cb']), (b'a\rb\n', ['a\rb']),
                              (b'\xff\xe2\x80\xa8\n', ['\udcff\u2028'])):
        path.write_bytes(content)
        assert [words[1] for words in lines(f'f :::: {path}')] == expected


@pytest.mark.parametrize(('line', 'message'), [
    ('::: a', 'no command'), ('echo :::+ a', 'linked'), ('echo {2} ::: a', r'\{2\}, but there are 1 sources')])
def test_wrong_usage(line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        lines(line)


@pytest.mark.parametrize(('line', 'width', 'expected'), [
    ('sim -t {1} x', 2, [2]), ('{} a', 1, [0]), ('echo x', 2, [2, 3]), ('date', 0, [])])
def test_words_that_vary(line: str, width: int, expected: list[int]) -> None:
    assert varying(line.split(), width, shell=False) == expected


def test_commands_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(['--dry-run', '--cores', '2', '--', 'echo', '{}', ':::', 'a b', "c'd"]) == 0
    assert capsys.readouterr().out.splitlines() == ["echo 'a b'", """echo 'c'"'"'d'"""]


def test_journal(tmp_path: Path) -> None:
    path = tmp_path / 'logs' / 'a.joblog'
    one, two, three = (Job(number, ['echo', f'a\n{number}']) for number in (1, 2, 3))
    log = Joblog(path, resume=True)
    log.add(one, 0)
    log.add(two, 3)
    log.add(three, None)
    log.close()
    with path.open('a') as file:
        file.write('4\t1.0\t0\t0\techo 4')   # the writer was killed
    log = Joblog(path, resume=True)
    assert [log.has(job) for job in (one, two, three, Job(1, ['echo']), Job(4, ['echo', '4']))] == [True] + [False] * 4
    log.add(two, -9)
    log.close()
    assert path.read_text().splitlines()[-1].split('\t')[2:4] == ['-1', '9']
    log = Joblog(path, resume=False)
    log.close()
    assert not log.has(one)
    assert len(path.read_text().splitlines()) == 1


@pytest.mark.parametrize('resume', [True, False])
def test_a_file_that_is_no_journal_stays(tmp_path: Path, resume: bool) -> None:
    path = tmp_path / 'results'
    path.write_bytes(b'1.0\xff\n')
    with pytest.raises(UsageError, match='results is no journal of rp run and would be overwritten'):
        Joblog(path, resume=resume)
    assert path.read_bytes() == b'1.0\xff\n'
    path.write_text('')
    Joblog(path, resume=resume).close()
    Joblog(path, resume=resume).close()


def test_journal_of_a_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('XDG_STATE_HOME', str(tmp_path))
    monkeypatch.chdir(tmp_path)
    path = default_path(['echo', ':::', 'a'])
    assert path.is_relative_to(tmp_path)
    assert path == default_path(['echo', ':::', 'a']) != default_path(['echo', ':::', 'b'])

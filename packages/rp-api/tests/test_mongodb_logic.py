"""What the MongoDB backend decides without a database: which updates count, who is silent, what is shown of a URL."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_api import states
from rp_api.coordination.contract import Update
from rp_api.coordination.mongodb import documents, server
from rp_api.coordination.mongodb.news import counts, fold
from rp_api.coordination.mongodb.presence import Silence
from rp_api.errors import CoordinationError, StateError

MODELS = st.sampled_from([states.TASK, states.PILOT])


@given(MODELS, st.data())
def test_one_update_has_the_effect_of_all(model: states.StateModel, data: st.DataObject) -> None:
    names = st.sampled_from(model.names)
    reports = data.draw(st.lists(names, min_size=1))
    current = start = data.draw(names)
    for state in reports:
        if counts(model, current, state):
            current = state
    folded = fold(model, [Update('a', state) for state in reports])['a'].state
    assert (folded if counts(model, start, folded) else start) == current


@given(MODELS, st.data())
def test_updates_count_as_the_state_model_says(model: states.StateModel, data: st.DataObject) -> None:
    current, target = (data.draw(st.sampled_from(model.names)) for _ in range(2))
    try:
        moves = model.progress(current, target)[0] != current
    except StateError:
        moves = False
    assert counts(model, current, target) == moves


def test_what_became_known_before_stays_known() -> None:
    folded = fold(states.TASK, [Update('a', states.AGENT_EXECUTING, {'sandbox': '/x'}), Update('b', states.DONE),
                                Update('a', states.AGENT_STAGING_OUTPUT), Update('b', states.FAILED, {'x': 1})])
    assert folded == {'a': Update('a', states.AGENT_STAGING_OUTPUT, {'sandbox': '/x'}), 'b': Update('b', states.DONE)}


def test_silence_is_counted_from_the_last_change() -> None:
    silence = Silence(1.0)
    seconds = [silence.observe('a', beat, now) for beat, now in ((1, 0), (1, 1), (1, 2), (2, 3), (2, 4), (1, 5))]
    assert seconds == [0, 1, 2, 0, 1, 0]


def test_time_in_which_nobody_looked_is_no_silence() -> None:
    silence = Silence(1.0)
    silence.observe('a', 1, 0)
    assert silence.observe('a', 1, 1000) == 2   # twice the interval at most


def test_numbers_grow() -> None:
    numbers = documents.Numbers()
    given = [numbers.next() for _ in range(1000)]
    assert given == sorted(set(given))
    numbers.above(given[-1] + 10**12)
    assert numbers.next() == given[-1] + 10**12 + 1


def test_large_results_are_replaced_by_a_sentence() -> None:
    update = Update('a', states.DONE, {'exit_code': 0, 'return_value': 'x' * (documents.MAX_VALUE_BYTES + 1)})
    part, = documents.packed_updates([update])
    (_, state, info), = documents.unpacked_updates(part)
    assert state == states.DONE
    assert info == {'exit_code': 0, 'exception': 'return_value of a did not fit into the database: move large results '
                                                 'in files'}


def test_updates_go_in_parts_that_fit() -> None:
    updates = [Update(f'{number}', states.DONE, {'stdout': 'x' * 1_000_000}) for number in range(20)]
    parts = documents.packed_updates(updates)
    assert [update for part in parts for update in documents.unpacked_updates(part)] == updates
    assert max(map(len, parts)) <= documents.NEWS_BYTES + 1000
    assert documents.packed_updates([]) == []


def test_large_descriptions_are_refused() -> None:
    with pytest.raises(CoordinationError, match=r'task\.000007'):
        documents.packed('task.000007', {'code': 'x' * (documents.MAX_VALUE_BYTES + 1)})


@pytest.mark.parametrize('url', [
    'mongodb://user:s3cr:et@host:27017/db?authSource=admin&tlsCertificateKeyFilePassword=hidden',
    'mongodb+srv://user:s3cr%3Aet@cluster.example.org/db'])
def test_urls_are_shown_without_secrets(url: str) -> None:
    for shown in server.masked(url), server.address(url), server.without_secrets(f'cannot use {url}', url):
        assert 's3cr' not in shown
        assert 'hidden' not in shown
        assert '/db' in shown


@pytest.mark.parametrize('url', ['mongodb://user:pa:ss@host', 'mongodb://host:port/', 'mongodb://a/b c',
                                 'mongodb://host/?tlsNoSuchOption', 'http://host'])
def test_bad_urls_are_refused_with_a_reason(url: str) -> None:
    with pytest.raises(CoordinationError, match='is not the URL of a MongoDB') as raised:
        server.open_client(url).close()
    assert 'pa:ss' not in str(raised.value)


def test_options_of_the_url_win() -> None:
    with server.open_client('mongodb://127.0.0.1:1/db?serverSelectionTimeoutMS=77&w=1') as client:
        assert client.options.server_selection_timeout == 0.077
        assert client.write_concern.document == {'w': 1, 'j': True}
        assert server.database_name(client) == 'db'
    with server.open_client('mongodb://127.0.0.1:1') as client:
        assert client.write_concern.document == {'w': 'majority', 'j': True}
        assert server.database_name(client) == 'radical_pilot'


def test_without_pymongo_the_error_says_what_to_install() -> None:
    program = ('import sys; sys.modules["pymongo"] = None\n'
               'from rp_api.errors import CoordinationError\n'
               'try:\n    import rp_api.coordination.mongodb\nexcept CoordinationError as error:\n    print(error)')
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=True)
    assert "pip install 'rp-api[mongodb]'" in done.stdout

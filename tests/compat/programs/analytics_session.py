"""radical.analytics on a session that ends here: where all core-seconds went, and its own examples."""

import os
import subprocess
import sys
from pathlib import Path

import radical.analytics as ra

import radical.pilot as rp

EXAMPLES = (
    '00_session_describe_rp', '01_session_list_rp', '03_session_filter_rp', '04_session_duration_rp',
    '05_relationsships')
METRICS = [['startup', ['boot', 'setup_1']], 'warm', ['prepare', ['exec_queue', 'exec_prep']],
           ['launcher', ['exec_rp', 'exec_sh', 'term_sh', 'term_rp']], 'exec_cmd', 'unschedule', 'drain', 'idle',
           'agent', 'term']
TASKS = 20

with rp.Session() as session:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    tmgr.add_pilots(pmgr.submit_pilots(rp.PilotDescription({'resource': 'local.exact', 'cores': 4, 'runtime': 10})))
    tmgr.submit_tasks([rp.TaskDescription({'executable': '/bin/sleep', 'arguments': ['0.2']}) for _ in range(TASKS)])
    tmgr.wait_tasks()
    directory = session.path

analysed = ra.Session(directory, 'radical.pilot')
used = analysed.utilization(METRICS)[3]
assert used['exec_cmd'] > 0, used
assert abs(used['Other']) < 0.01, used
assert analysed.consistency() == []
assert len(analysed.get(etype='task')) == TASKS
examples, = Path(os.environ['COMPAT_SOURCES']).glob('radical_analytics-*/examples')
for name in EXAMPLES:
    done = subprocess.run([sys.executable, str(examples / f'{name}.py'), directory], capture_output=True, text=True)
    assert done.returncode == 0, f'{name}: {done.stderr}'
print('all core-seconds accounted for')

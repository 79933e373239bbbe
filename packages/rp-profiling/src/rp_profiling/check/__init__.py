"""Holds a session against the catalogue: what it finds is a fault of the system, or of what wrote the trace.

Three things are checked: every partial order (`orders`), the state models (`states`), and the account of cores and GPUs
(`account`). What only a killed process can explain, as a profile without its end, is a remark and no violation.
"""

from __future__ import annotations

from pathlib import Path

from rp_profiling.check.findings import Findings, Violation
from rp_profiling.read.trace import Trace, read_trace

__all__ = ['Findings', 'Violation', 'check_session', 'check_trace']


def check_session(directory: str | Path, *sandboxes: str | Path) -> Findings:
    """What is wrong with the session in a directory; `sandboxes` are those of pilots, as far as they are not found."""
    return check_trace(read_trace(directory, sandboxes))


def check_trace(trace: Trace) -> Findings:
    """What is wrong with a session."""
    from rp_profiling.check.account import check_account
    from rp_profiling.check.orders import check_orders
    from rp_profiling.check.states import check_states

    findings = Findings(trace)
    known = check_states(trace, findings)
    check_orders(trace, known, findings)
    check_account(trace, known, findings)
    return findings

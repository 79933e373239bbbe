"""Checks a session against the catalogue; a violation is a fault of the system, or of the writer of the trace.

The check covers every partial order (`orders`), the state models (`states`), the account of cores and GPUs
(`account`), and the records of function calls (`calls`). Effects of a killed process, as a profile without its end, are
remarks and no violations.
"""

from __future__ import annotations

from pathlib import Path

from rp_profiling.check.findings import Findings, Violation
from rp_profiling.read.session import read_trace
from rp_profiling.read.trace import Trace

__all__ = ['Findings', 'Violation', 'check_session', 'check_trace']


def check_session(directory: str | Path, *sandboxes: str | Path) -> Findings:
    """Check the session in a directory; `sandboxes` are those of pilots that are not found automatically."""
    return check_trace(read_trace(directory, sandboxes))


def check_trace(trace: Trace) -> Findings:
    """Check a session."""
    from rp_profiling.check.account import check_account
    from rp_profiling.check.calls import check_calls
    from rp_profiling.check.orders import check_orders
    from rp_profiling.check.states import check_states

    findings = Findings(trace)
    known = check_states(trace, findings)
    check_orders(trace, known, findings)
    check_account(trace, known, findings)
    check_calls(trace, findings)
    return findings

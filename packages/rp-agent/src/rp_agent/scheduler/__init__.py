"""The agent's scheduler: `component` accepts tasks, `waitpool` queues them, `slotmap` finds free cores and GPUs.

`policies` decide when and where a task is placed; `policy` is their base class. Imports resource managers, but no
executor.
"""

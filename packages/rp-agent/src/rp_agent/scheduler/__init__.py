"""Places tasks on the cores and GPUs of a pilot: `component` takes tasks, `waitpool` holds them, `slotmap` finds room.

`policies` decide when and where; `policy` is their base. Imports resource managers, but no executor.
"""

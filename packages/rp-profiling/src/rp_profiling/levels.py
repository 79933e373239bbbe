"""The levels of detail of traces: all events, the usual ones, those that states and utilisation need, or none."""

FULL = 'full'
DEFAULT = 'default'
STATES = 'states'
OFF = 'off'

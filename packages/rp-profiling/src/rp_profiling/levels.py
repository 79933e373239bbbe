"""The levels of detail of traces: all events, those that states and utilisation need, or none."""

FULL = 'full'
STATES = 'states'
OFF = 'off'

"""The levels of detail of traces: all events, those that show states, or none."""

FULL = 'full'
STATES = 'states'
OFF = 'off'

"""Functions, classes and objects that travel by value: pickling them, contents beside a pickle, and what changes."""

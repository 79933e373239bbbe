"""Functions, classes and objects that travel by value: pickling them, the cause if that fails, and changes since."""

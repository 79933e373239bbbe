"""The tasks of `rp run`: inputs and placeholders, the pilot that runs them, journals of what is done."""

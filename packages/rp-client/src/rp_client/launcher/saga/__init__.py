"""The launcher that submits pilots to batch systems through radical.saga, which runs in a process of its own."""

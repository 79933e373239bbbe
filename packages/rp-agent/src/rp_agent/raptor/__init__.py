"""The agent's part of RAPTOR: masters and workers run as its tasks, and it brings masters the tasks that are theirs."""

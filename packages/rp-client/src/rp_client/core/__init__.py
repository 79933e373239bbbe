"""Records: what the client knows of tasks, sweeps and pilots. Applications see them through handles such as `Task`."""

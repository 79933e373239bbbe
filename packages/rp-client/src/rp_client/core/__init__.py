"""Records of tasks and pilots, without sockets, clocks, threads and files; applications see them through handles."""

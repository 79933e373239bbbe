"""Stand-in for a module that PSI/J's source distribution lacks: the executor, launcher and queue that are tested."""


class ExecutorTestParams:
    def __init__(self, executor: str) -> None:
        self.executor = executor
        self.launcher = 'single'
        self.url = self.queue_name = self.multi_node_queue_name = self.account = None
        self.custom_attributes: dict[str, object] = {}
